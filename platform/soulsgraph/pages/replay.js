"use strict";
// A recorded fight: unpacks the page's data, draws the row that is scrubbed to, and fills the columns of the skills.

const replay = { rows: 0, row: -1, arrays: {}, meta: null, ready: null };
window.replay = replay;

const TYPES = { float32: Float32Array, int32: Int32Array, uint32: Uint32Array, int16: Int16Array, uint8: Uint8Array };
const find = (id) => document.getElementById(id);

function element(kind, text, className) {
  const made = document.createElement(kind);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

// What stays the same need not be laid out again.
function write(place, text) {
  if (place.textContent !== text) place.textContent = text;
}

async function unpack() {
  const meta = JSON.parse(find("data").textContent);
  const packed = Uint8Array.from(atob(meta.packed), (one) => one.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const whole = await new Response(stream).arrayBuffer();
  for (const { name, type, shape, offset } of meta.arrays) {
    const count = shape.reduce((one, other) => one * other, 1);
    const wide = shape.length > 1 ? shape[1] : 1;
    replay.arrays[name] = { values: new TYPES[type](whole, offset, count), wide };
  }
  delete meta.packed;
  replay.meta = meta;
  replay.rows = meta.rows;
}

function at(name, row, column = 0) {
  const array = replay.arrays[name];
  return array.values[row * array.wide + column];
}

const raw = (row, name) => at("raw", row, replay.meta.raw.indexOf(name));
// Rows of a list of parts or areas lie side by side; `<name>_rows` says where each row's begin.
const some = (name, row) => {
  const begins = replay.arrays[`${name}_rows`].values, array = replay.arrays[name], found = [];
  for (let index = begins[row]; index < begins[row + 1]; index += 1) {
    found.push(array.values.subarray(index * array.wide, (index + 1) * array.wide));
  }
  return found;
};
const number = (value, digits = 3) => (Number.isFinite(value) ? value.toFixed(digits) : "-");
const rgb = (name, alpha = 1) => `rgba(${replay.meta.colours[name].join(",")},${alpha})`;

// ---- the fight -------------------------------------------------------------------------------------------------

const TILE_M = 2, RING_M = 0.35, MARGIN_M = 7, LEAST_M = 14;

function view(row, width, height) {
  const x = raw(row, "PLAYER_X"), y = raw(row, "PLAYER_Y");
  const dx = raw(row, "BOSS_X") - x, dy = raw(row, "BOSS_Y") - y;
  const cameraX = raw(row, "CAMERA_X"), cameraY = raw(row, "CAMERA_Y"), level = Math.hypot(cameraX, cameraY);
  const ahead = level > 0 ? [cameraX / level, cameraY / level] : [0, 1];
  const metre = height / Math.max(MARGIN_M + Math.hypot(dx, dy), LEAST_M);
  const turn = (right, up) => [right * ahead[1] - up * ahead[0], right * ahead[0] + up * ahead[1]];
  const middle = [x + dx / 2, y + dy / 2];
  const pixel = (px, py) => {
    const [right, up] = turn(px - middle[0], py - middle[1]);
    return [width / 2 + right * metre, height / 2 - up * metre];
  };
  return { width, height, metre, ahead, middle, turn, pixel };
}

function drawFloor(ink, seen) {
  const { ahead: [ax, ay], metre, middle: [mx, my], width, height } = seen, { arena } = replay.meta;
  ink.fillStyle = rgb("ABYSS");
  ink.fillRect(0, 0, width, height);
  ink.save();
  const scale = ink.getTransform().a;
  ink.setTransform(
    scale * ay * metre, -scale * ax * metre, -scale * ax * metre, -scale * ay * metre,
    scale * (width / 2 - (mx * ay - my * ax) * metre), scale * (height / 2 + (mx * ax + my * ay) * metre),
  );
  const disc = (radius, colour) => {
    ink.beginPath();
    ink.arc(arena.x, arena.y, radius, 0, 2 * Math.PI);
    ink.fillStyle = rgb(colour);
    ink.fill();
  };
  disc(arena.radius + 0.3, "EDGE");
  disc(arena.radius, "FLOOR");
  ink.clip();
  const far = Math.hypot(width, height) / (2 * metre), first = [mx, my].map((one) => Math.floor((one - far) / TILE_M));
  const last = [mx, my].map((one) => Math.ceil((one + far) / TILE_M));
  ink.beginPath();
  for (let i = first[0]; i <= last[0]; i += 1) {
    for (let j = first[1] + (((i + first[1]) % 2) + 2) % 2; j <= last[1]; j += 2) {
      ink.rect(i * TILE_M, j * TILE_M, TILE_M, TILE_M);
    }
  }
  ink.fillStyle = rgb("TILE");
  ink.fill();
  ink.restore();
}

function sector(ink, [x, y], radius, from, to, colour) {
  ink.beginPath();
  if (to - from < 2 * Math.PI) ink.moveTo(x, y);
  ink.arc(x, y, radius, from, Math.min(to, from + 2 * Math.PI));
  ink.closePath();
  ink.fillStyle = colour;
  ink.fill();
}

function fighter(row, seen, who, radius) {
  const heading = raw(row, `${who}_ANGLE`), [right, up] = seen.turn(-Math.sin(heading), -Math.cos(heading));
  const place = seen.pixel(raw(row, `${who}_X`), raw(row, `${who}_Y`));
  return { place, right, up, angle: Math.atan2(-up, right), radius: radius * seen.metre };
}

function drawFighter(ink, seen, one, colour, time, length) {
  const { place: [x, y], right, up, radius } = one, edge = RING_M * seen.metre;
  sector(ink, one.place, radius + edge, 0, 2 * Math.PI, rgb("EMPTY"));
  const progress = length > 0 ? Math.min(time / length, 1) : 0;
  sector(ink, one.place, radius + edge, -Math.PI / 2, -Math.PI / 2 + 2 * Math.PI * progress, rgb("COURSE"));
  sector(ink, one.place, radius, 0, 2 * Math.PI, rgb(colour));
  if (!Number.isFinite(right)) return;
  ink.beginPath();
  ink.moveTo(x + right * (radius + edge), y - up * (radius + edge));
  for (const side of [-0.4, 0.4]) ink.lineTo(x - up * side * radius, y - right * side * radius);
  ink.fillStyle = rgb("NOSE");
  ink.fill();
}

function words(ink, text, x, y, colour, size = 14, anchor = "center") {
  ink.font = `${size}px system-ui, sans-serif`;
  ink.textAlign = anchor;
  ink.fillStyle = "rgba(0,0,0,.8)";
  ink.fillText(text, x + 1, y + 1);
  ink.fillStyle = colour;
  ink.fillText(text, x, y);
}

function bar(ink, x, y, width, height, share, colour) {
  ink.fillStyle = rgb("EMPTY");
  ink.fillRect(x, y, width, height);
  ink.fillStyle = rgb(colour);
  ink.fillRect(x, y, width * Math.min(Math.max(share || 0, 0), 1), height);
}

function bossWords(row) {
  const doing = replay.meta.words[at("boss_doing", row)], until = at("until_hit_s", row);
  if (!some("boss_parts", row).length) return [doing, rgb("FAINT")];
  if (until === 0) return [`${doing}: strikes`, rgb("LOST")];
  return Number.isFinite(until) ? [`${doing} in ${until.toFixed(1)} s`, rgb("WIND_UP")] : [`${doing}: over`, rgb("FAINT")];
}

function drawFight(ink, row, width, height) {
  if (!Number.isFinite(raw(row, "PLAYER_X")) || !Number.isFinite(raw(row, "BOSS_X"))) {
    ink.fillStyle = rgb("ABYSS");
    ink.fillRect(0, 0, width, height);
    words(ink, "this recording has no places to draw", width / 2, height / 2, rgb("TEXT"), 16);
    drawBars(ink, row, width, height);
    return;
  }
  const { meta } = replay, seen = view(row, width, height);
  drawFloor(ink, seen);
  const boss = fighter(row, seen, "BOSS", meta.bossRadii[at("phase", row)] || meta.bossRadius);
  const player = fighter(row, seen, "PLAYER", meta.playerRadius);
  sector(ink, player.place, meta.lockRange * seen.metre, -Math.PI / 2 - meta.viewRad, -Math.PI / 2 + meta.viewRad,
    rgb("VIEW", 0.09));
  for (const [reach, half, offset, wound, open] of some("areas", row)) {
    const centre = [boss.place[0] + boss.right * offset * seen.metre, boss.place[1] - boss.up * offset * seen.metre];
    const from = boss.angle - Math.min(half, Math.PI), to = boss.angle + Math.min(half, Math.PI);
    sector(ink, centre, reach * seen.metre, from, to, open ? rgb("STRIKE", 0.6) : rgb("WIND_UP", 0.27));
    if (!open) sector(ink, centre, reach * wound * seen.metre, from, to, rgb("WIND_UP", 0.27));
  }
  const locked = raw(row, "LOCKED") > 0;
  if (locked) {
    ink.setLineDash([6, 6]);
    ink.strokeStyle = rgb("LOCK");
    ink.beginPath();
    ink.moveTo(...player.place);
    ink.lineTo(...boss.place);
    ink.stroke();
    ink.setLineDash([]);
  }
  const course = (who) => [raw(row, `${who}_ANIMATION_TIME_S`), raw(row, `${who}_ANIMATION_LENGTH_S`)];
  drawFighter(ink, seen, boss, "BOSS", ...course("BOSS"));
  if (at("invulnerable", row)) {
    ink.strokeStyle = rgb("SAFE");
    ink.lineWidth = 0.35 * seen.metre;
    ink.beginPath();
    ink.arc(...player.place, player.radius + 0.62 * seen.metre, 0, 2 * Math.PI);
    ink.stroke();
    ink.lineWidth = 1;
  }
  drawFighter(ink, seen, player, "PLAYER", ...course("PLAYER"));
  if (locked) sector(ink, boss.place, 0.22 * seen.metre, 0, 2 * Math.PI, rgb("LOCK"));
  const [text, colour] = bossWords(row);
  words(ink, text, boss.place[0], boss.place[1] - boss.radius - 0.9 * seen.metre, colour, 16);
  for (const [who, one] of [["player", player], ["boss", boss]]) {
    const points = at(`${who}_change`, row), age = at(`${who}_change_age_s`, row);
    if (points && age < 1) {
      const shade = rgb(points > 0 ? "HEAL" : who === "player" ? "LOST" : "LANDED");
      ink.globalAlpha = Math.min(2 * (1 - age), 1);
      const sign = points > 0 ? "+" : "";
      words(ink, `${sign}${points.toFixed(0)}`, one.place[0] + one.radius + 0.9 * seen.metre,
        one.place[1] - age * seen.metre, shade, 20, "left");
      ink.globalAlpha = 1;
    }
  }
  drawBars(ink, row, width, height);
}

function drawBars(ink, row, width, height) {
  const { meta } = replay, share = (name) => raw(row, name) / Math.max(raw(row, `${name}_MAX`), 1);
  bar(ink, 10, 10, 0.36 * width, 9, share("PLAYER_HP"), "HP");
  bar(ink, 10, 24, 0.36 * width, 9, share("STAMINA"), "STAMINA");
  const points = (name, unit) => `${number(Math.max(raw(row, name), 0), 0)} ${unit}`;
  words(ink, points("PLAYER_HP", "HP"), 0.36 * width + 18, 19, rgb("TEXT"), 12, "left");
  words(ink, points("STAMINA", "stamina"), 0.36 * width + 18, 33, rgb("TEXT"), 12, "left");
  const flasks = raw(row, "FLASKS");
  words(ink, `${Number.isFinite(flasks) ? flasks : "?"} flask${flasks === 1 ? "" : "s"}`, 10, 50, rgb("FLASK"), 12, "left");
  const left = width / 6, wide = width - width / 3, low = height - 20;
  bar(ink, left, low, wide, 9, share("BOSS_HP"), "HP");
  ink.fillStyle = rgb("NOSE");
  if (meta.wonBelow > 0.01) ink.fillRect(left + meta.wonBelow * wide - 1, low, 2, 9);
  words(ink, meta.boss, width / 2, low - 6, rgb("TEXT"), 12);
  words(ink, points("BOSS_HP", "HP"), left + wide + 8, low + 9, rgb("TEXT"), 12, "left");
  if (row === replay.rows - 1) {
    ink.fillStyle = "rgba(14,14,18,.75)";
    ink.fillRect(0, height / 2 - 30, width, 52);
    words(ink, meta.outcome.toUpperCase(), width / 2, height / 2 + 8, rgb(meta.outcome === "won" ? "WON" : "DIED"), 32);
  }
}

// ---- the tracks over time --------------------------------------------------------------------------------------

const TRACK = 44, LABEL = 96;

function tracksHeight() {
  return TRACK * 2 + replay.meta.skills.length * TRACK;
}

function line(ink, values, left, top, width, colour, low, high) {
  ink.strokeStyle = colour;
  ink.beginPath();
  let begun = false;
  values.forEach((value, row) => {
    if (!Number.isFinite(value)) return;
    const x = left + (row / Math.max(replay.rows - 1, 1)) * width;
    const y = top + TRACK - 6 - ((value - low) / (high - low || 1)) * (TRACK - 12);
    if (begun) ink.lineTo(x, y);
    else ink.moveTo(x, y);
    begun = true;
  });
  ink.stroke();
}

const everyRow = (of) => Array.from({ length: replay.rows }, (_, row) => of(row));

function drawTracks(width) {
  const drawn = document.createElement("canvas"), ratio = window.devicePixelRatio || 1;
  drawn.width = width * ratio;
  drawn.height = tracksHeight() * ratio;
  const ink = drawn.getContext("2d"), wide = width - LABEL, each = wide / replay.rows;
  ink.scale(ratio, ratio);
  ink.fillStyle = "#fff";
  ink.fillRect(0, 0, width, tracksHeight());
  const label = (text, top, colour = "#222", drop = 16) => {
    ink.fillStyle = colour;
    ink.font = "12px system-ui, sans-serif";
    ink.fillText(text, 4, top + drop);
  };
  const share = (name) => everyRow((row) => raw(row, name) / Math.max(raw(row, `${name}_MAX`), 1));
  label("player HP", 0, rgb("PLAYER"));
  label("boss HP", 0, rgb("BOSS"), 32);
  line(ink, share("PLAYER_HP"), LABEL, 0, wide, rgb("PLAYER"), 0, 1);
  line(ink, share("BOSS_HP"), LABEL, 0, wide, rgb("BOSS"), 0, 1);
  label("hit windows", TRACK, rgb("STRIKE"));
  label("not to be hit", TRACK, "#1690a8", 32);
  // Rows of the same colour are one rectangle: edges of several would show where colours are translucent.
  const stripes = (top, high, colour) => {
    let begun = 0, before = colour(0);
    for (let row = 1; row <= replay.rows; row += 1) {
      const now = row < replay.rows ? colour(row) : undefined;
      if (now === before) continue;
      if (before) {
        ink.fillStyle = before;
        ink.fillRect(LABEL + begun * each, top, (row - begun) * each, high);
      }
      [begun, before] = [row, now];
    }
  };
  const strikes = rgb("STRIKE"), windsUp = rgb("WIND_UP", 0.45);
  stripes(TRACK + 5, 15, (row) => {
    const areas = some("areas", row);
    return areas.length ? (areas.some((area) => area[4] > 0) ? strikes : windsUp) : null;
  });
  stripes(TRACK + 24, 12, (row) => (at("invulnerable", row) ? "#1690a8" : null));
  replay.meta.skills.forEach((skill, index) => {
    const top = (2 + index) * TRACK, count = skill.actions.length;
    label(skill.name.replaceAll("_", " "), top);
    label(skill.valued ? "best value" : "actions", top, "#767676", 32);
    stripes(top + 3, TRACK - 6, (row) => {
      const action = at(`${skill.name}/action`, row);
      return action < 0 ? null : `hsl(${(360 * action) / count} 55% 82%)`;
    });
    if (!skill.valued) return;
    const best = everyRow((row) => Math.max(...skill.actions.map((_, one) => at(`${skill.name}/values`, row, one))));
    const finite = best.filter(Number.isFinite);
    line(ink, best, LABEL, top, wide, "#222", Math.min(...finite), Math.max(...finite));
  });
  ink.fillStyle = "#ddd";
  for (let top = TRACK; top < tracksHeight(); top += TRACK) ink.fillRect(0, top, width, 1);
  return drawn;
}

// ---- the columns of the skills ---------------------------------------------------------------------------------

const columns = [];

function buildSkills() {
  for (const skill of replay.meta.skills) {
    const box = element("div", undefined, "skill");
    box.append(element("h3", skill.name.replaceAll("_", " ")));
    box.append(element("p", skill.note, "faint"));
    const rows = (title, names) => {
      const table = element("table"), cells = [];
      for (const name of names) {
        const made = element("tr"), value = element("td");
        made.append(element("td", name), value);
        table.append(made);
        cells.push({ made, value });
      }
      box.append(element("h4", title), table);
      return cells;
    };
    const actions = rows(skill.valued ? "actions, Q-values" : "actions", skill.actions.map((one) => one.replaceAll("_", " ")));
    const terms = rows("reward of the decision", [...skill.terms, "sum", "sum of the fight so far"]);
    const inputs = rows("inputs", skill.inputs.map((one) => one.name));
    const decided = element("p", "", "faint");
    box.insertBefore(decided, box.children[2]);
    find("skills").append(box);
    let sum = 0;
    const returns = everyRow((row) => {
      const reward = at(`${skill.name}/reward`, row);
      sum += Number.isFinite(reward) ? reward : 0;
      return sum;
    });
    let begun = -1;
    const begins = everyRow((row) => (at(`${skill.name}/decides`, row) ? (begun = row) : begun));
    columns.push({ skill, actions, terms, inputs, decided, returns, begins });
  }
}

function fillSkill({ skill, actions, terms, inputs, decided, returns, begins }, row) {
  // Beside the action under way stands what it was decided by.
  const begun = begins[row], seen = Math.max(begun, 0), chosen = at(`${skill.name}/action`, row);
  const random = begun >= 0 && at(`${skill.name}/random`, begun) === 1;
  const drawn = random ? ", drawn at random" : "";
  write(decided, begun < 0 ? "has not decided yet" : `decided at ${at("time_s", begun).toFixed(1)} s${drawn}`);
  actions.forEach(({ made, value }, index) => {
    made.classList.toggle("chosen", index === chosen);
    write(value, skill.valued ? number(at(`${skill.name}/values`, seen, index)) : "");
  });
  skill.terms.forEach((term, index) => {
    write(terms[index].value, begun < 0 ? "-" : number(at(`${skill.name}/term/${term}`, begun)));
  });
  write(terms[skill.terms.length].value, begun < 0 ? "-" : number(at(`${skill.name}/reward`, begun)));
  write(terms[skill.terms.length + 1].value, number(returns[row]));
  skill.inputs.forEach(({ places }, index) => {
    if (places.length === 1) {
      write(inputs[index].value, number(at(`${skill.name}/observation`, seen, places[0])));
      return;
    }
    const set = places.findIndex((place) => at(`${skill.name}/observation`, seen, place) > 0);
    write(inputs[index].value, set < 0 ? "other" : String(set));
  });
}

// ---- scrubbing -------------------------------------------------------------------------------------------------

let playing = 0;

function show(row) {
  const { meta } = replay;
  row = Math.min(Math.max(row, 0), replay.rows - 1);
  replay.row = row;
  const fight = find("fight"), ink = fight.getContext("2d"), ratio = fight.width / meta.size[0];
  ink.setTransform(ratio, 0, 0, ratio, 0, 0);
  drawFight(ink, row, ...meta.size);
  find("cursor").style.transform = `translateX(${LABEL + ((row + 0.5) / replay.rows) * (replay.width - LABEL) - 1}px)`;
  find("slider").value = row;
  write(find("time"), `tick ${row} of ${replay.rows - 1}, ${at("time_s", row).toFixed(1)} s`);
  const held = meta.controls.filter((_, bit) => at("controls", row) & (1 << bit)).map((one) => one.replaceAll("_", " "));
  const player = meta.words[at("player_doing", row)], safe = at("invulnerable", row) ? ", cannot be hit" : "";
  write(find("boss-doing"), bossWords(row)[0] || "-");
  write(find("player-doing"), `${player || "-"}${safe}`);
  write(find("held"), held.join(", ") || "-");
  for (const column of columns) fillSkill(column, row);
}
replay.show = show;

// Milliseconds that drawing takes, of rows all over the fight; a pixel is read so that nothing is left for later.
function measure(count) {
  const taken = [];
  for (let index = 0; index < count; index += 1) {
    const begun = performance.now();
    show((replay.row + 7919) % replay.rows);
    find("fight").getContext("2d").getImageData(0, 0, 1, 1);
    taken.push(performance.now() - begun);
  }
  return taken;
}
replay.measure = measure;

// At the game's speed: a recording may have a row a tick, or one a decision.
function play(on) {
  window.clearTimeout(playing);
  playing = 0;
  const more = on && replay.row < replay.rows - 1;
  if (more) {
    const wait = 1000 * (at("time_s", replay.row + 1) - at("time_s", replay.row));
    playing = window.setTimeout(() => { show(replay.row + 1); play(true); }, wait);
  }
  find("play").textContent = more ? "pause" : "play";
}

function listen() {
  find("slider").addEventListener("input", (event) => show(Number(event.target.value)));
  find("play").addEventListener("click", () => play(!playing));
  find("back").addEventListener("click", () => show(replay.row - 1));
  find("on").addEventListener("click", () => show(replay.row + 1));
  for (const one of document.querySelectorAll("[data-row]")) {
    one.addEventListener("click", () => show(Number(one.dataset.row)));
  }
  const tracks = find("tracks");
  const scrub = (event) => {
    if (!event.buttons) return;
    const share = (event.offsetX - LABEL) / (tracks.clientWidth - LABEL);
    show(Math.floor(share * replay.rows));
  };
  tracks.addEventListener("pointerdown", scrub);
  tracks.addEventListener("pointermove", scrub);
  document.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 }[event.key];
    if (step) show(replay.row + step);
    else if (event.key === " ") play(!playing);
    else return;
    event.preventDefault();
  });
  window.addEventListener("resize", fit);
}

function fit() {
  const { meta } = replay, ratio = window.devicePixelRatio || 1, fight = find("fight"), tracks = find("tracks");
  [fight.width, fight.height] = meta.size.map((side) => side * ratio);
  const width = Math.max(tracks.parentElement.clientWidth, 300);
  replay.width = width;
  tracks.style.height = `${tracksHeight()}px`;
  [tracks.width, tracks.height] = [width * ratio, tracksHeight() * ratio];
  tracks.getContext("2d").drawImage(drawTracks(width), 0, 0);
  show(Math.max(replay.row, 0));
}

replay.ready = unpack().then(() => {
  buildSkills();
  find("slider").max = replay.rows - 1;
  listen();
  replay.row = Number(window.location.hash.slice(1)) || 0; // page.html#120 opens at tick 120
  fit();
  return true;
});
