"use strict";
// A recorded fight: unpacks the page's data, draws the moment that is scrubbed to, and fills the columns of the skills.

const replay = {
  rows: 0, row: 0, moment: 0, view: "flat", ghost: false, speed: 1, arrays: {}, meta: null, stage: null, ready: null,
};
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

// ---- a moment between rows -------------------------------------------------------------------------------------

const FLASH_S = 0.25, WAY_ROWS = 14;

// The two courses of a fight: as it was, and from the decision that mattered as it would have gone.
function courseOf(ghost) {
  const { rows, meta } = replay;
  return ghost ? { prefix: "ghost/", ...meta.ghost } : { prefix: "", first: 0, rows, outcome: meta.outcome };
}

const between = (from, to, share) => from + share * (to - from);
const angleBetween = (from, to, share) => from + share * Math.atan2(Math.sin(to - from), Math.cos(to - from));

// What a picture shows of a moment, counted in rows, of a course; null before it began.
function poseAt({ prefix, first, rows, outcome }, moment) {
  if (moment < first) return null;
  const last = rows - 1, own = Math.min(moment - first, last), row = Math.floor(own), share = own - row;
  const next = Math.min(row + 1, last), wait_s = at(`${prefix}time_s`, next) - at(`${prefix}time_s`, row);
  const value = (name, of = row) => at(`${prefix}raw`, of, replay.meta.raw.indexOf(name));
  const mixed = (name) => between(value(name), value(name, next), share);
  const spot = (who, of) => [value(`${who}_X`, of), value(`${who}_Y`, of), level(value(`${who}_Z`, of))];
  const figure = (name) => {
    const who = name.toUpperCase(), length_s = value(`${who}_ANIMATION_LENGTH_S`);
    const change = at(`${prefix}${name}_change`, row);
    const age_s = at(`${prefix}${name}_change_age_s`, row) + share * wait_s;
    const done_s = value(`${who}_ANIMATION_TIME_S`) + share * wait_s;
    return {
      x: mixed(`${who}_X`), y: mixed(`${who}_Y`), z: level(mixed(`${who}_Z`)),
      heading: angleBetween(value(`${who}_ANGLE`), value(`${who}_ANGLE`, next), share),
      doing: replay.meta.words[at(`${prefix}${name}_doing`, row)],
      progress: length_s > 0 ? Math.min(done_s / length_s, 1) : 0,
      change, age_s, struck: change < 0 && age_s < FLASH_S,
    };
  };
  const way = (who) => {
    const from = Math.max(row - WAY_ROWS, 0);
    const points = Array.from({ length: row - from + 1 }, (_, index) => spot(who, from + index));
    return points.every((point) => point.every(Number.isFinite)) ? points : [];
  };
  const camera = ["X", "Y", "Z"].map((axis) => mixed(`CAMERA_${axis}`)), later = some(`${prefix}areas`, next);
  const areas = some(`${prefix}areas`, row).map(([reach, half, offset, wound, open], index) => {
    const then = later[index], same = then && then[0] === reach && then[1] === half && then[3] > wound;
    return { reach, half, offset, open: open > 0, wound: same ? between(wound, then[3], share) : wound };
  });
  const player = figure("player"), boss = figure("boss"), ended = row === last;
  return {
    player: { ...player, moment: at(`${prefix}player_moment`, row), fallen: ended && outcome === "died" },
    boss: { ...boss, parts: some(`${prefix}boss_parts`, row), fallen: ended && outcome === "won" },
    bossRadius: replay.meta.bossRadii[at(`${prefix}phase`, row)] || replay.meta.bossRadius,
    ahead: camera.every(Number.isFinite) ? camera : [0, 1, 0],
    safe: at(`${prefix}invulnerable`, row) > 0,
    locked: value("LOCKED") > 0,
    ways: [way("PLAYER"), way("BOSS")],
    areas,
  };
}

// A height above the arena's floor; 0 where a recording has none.
const level = (z) => (Number.isFinite(z) ? z - replay.meta.arena.height : 0);

// ---- the fight -------------------------------------------------------------------------------------------------

const TILE_M = 2, RING_M = 0.35, MARGIN_M = 7, LEAST_M = 14;

function view({ player: { x, y }, boss, ahead: [cameraX, cameraY] }, width, height) {
  const dx = boss.x - x, dy = boss.y - y, far = Math.hypot(cameraX, cameraY);
  const ahead = far > 0 ? [cameraX / far, cameraY / far] : [0, 1];
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

function fighter({ x, y, heading }, seen, radius) {
  const [right, up] = seen.turn(-Math.sin(heading), -Math.cos(heading)), place = seen.pixel(x, y);
  return { place, right, up, angle: Math.atan2(-up, right), radius: radius * seen.metre };
}

function drawFighter(ink, seen, one, colour, progress) {
  const { place: [x, y], right, up, radius } = one, edge = RING_M * seen.metre;
  sector(ink, one.place, radius + edge, 0, 2 * Math.PI, rgb("EMPTY"));
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

function drawFight(ink, moment, width, height) {
  const row = Math.min(Math.floor(moment), replay.rows - 1), pose = poseAt(courseOf(false), moment);
  const ghost = replay.ghost ? poseAt(courseOf(true), moment) : null;
  if (![pose.player.x, pose.boss.x].every(Number.isFinite)) {
    ink.fillStyle = rgb("ABYSS");
    ink.fillRect(0, 0, width, height);
    words(ink, "this recording has no places to draw", width / 2, height / 2, rgb("TEXT"), 16);
  } else if (replay.view === "flat") {
    drawFlat(ink, row, pose, ghost, width, height);
  } else {
    ink.clearRect(0, 0, width, height);
    replay.stage.draw(pose, ghost, replay.view);
    const top = (one, radius) => replay.stage.above(one, radius)?.map((share, axis) => share * [width, height][axis]);
    const tops = { player: top(pose.player, replay.meta.playerRadius), boss: top(pose.boss, pose.bossRadius) };
    drawLabels(ink, row, pose, tops);
    if (ghost) drawGhostLabel(ink, top(ghost.player, replay.meta.playerRadius));
  }
  drawBars(ink, row, width, height);
}

function drawFlat(ink, row, pose, ghost, width, height) {
  const { meta } = replay, seen = view(pose, width, height);
  drawFloor(ink, seen);
  const boss = fighter(pose.boss, seen, pose.bossRadius), player = fighter(pose.player, seen, meta.playerRadius);
  sector(ink, player.place, meta.lockRange * seen.metre, -Math.PI / 2 - meta.viewRad, -Math.PI / 2 + meta.viewRad,
    rgb("VIEW", 0.09));
  for (const { reach, half, offset, wound, open } of pose.areas) {
    const centre = [boss.place[0] + boss.right * offset * seen.metre, boss.place[1] - boss.up * offset * seen.metre];
    const from = boss.angle - Math.min(half, Math.PI), to = boss.angle + Math.min(half, Math.PI);
    sector(ink, centre, reach * seen.metre, from, to, open ? rgb("STRIKE", 0.6) : rgb("WIND_UP", 0.27));
    if (!open) sector(ink, centre, reach * wound * seen.metre, from, to, rgb("WIND_UP", 0.27));
  }
  if (pose.locked) {
    ink.setLineDash([6, 6]);
    ink.strokeStyle = rgb("LOCK");
    ink.beginPath();
    ink.moveTo(...player.place);
    ink.lineTo(...boss.place);
    ink.stroke();
    ink.setLineDash([]);
  }
  if (ghost) {
    ink.globalAlpha = 0.4;
    drawFighter(ink, seen, fighter(ghost.boss, seen, ghost.bossRadius), "BOSS", ghost.boss.progress);
    drawFighter(ink, seen, fighter(ghost.player, seen, meta.playerRadius), "PLAYER", ghost.player.progress);
    ink.globalAlpha = 1;
  }
  drawFighter(ink, seen, boss, "BOSS", pose.boss.progress);
  if (pose.safe) {
    ink.strokeStyle = rgb("SAFE");
    ink.lineWidth = 0.35 * seen.metre;
    ink.beginPath();
    ink.arc(...player.place, player.radius + 0.62 * seen.metre, 0, 2 * Math.PI);
    ink.stroke();
    ink.lineWidth = 1;
  }
  drawFighter(ink, seen, player, "PLAYER", pose.player.progress);
  if (pose.locked) sector(ink, boss.place, 0.22 * seen.metre, 0, 2 * Math.PI, rgb("LOCK"));
  const top = ({ place: [x, y], radius }) => [x, y - radius - 0.5 * seen.metre];
  drawLabels(ink, row, pose, { player: top(player), boss: top(boss) });
  if (ghost) drawGhostLabel(ink, top(fighter(ghost.player, seen, meta.playerRadius)));
}

// What the boss does, and what HP changed by, above the figures; `tops` are their places, none behind the camera.
function drawLabels(ink, row, pose, tops) {
  const [text, colour] = bossWords(row);
  if (tops.boss) words(ink, text, tops.boss[0], Math.max(tops.boss[1] - 6, 56), colour, 15);
  for (const who of ["player", "boss"]) {
    const { change, age_s } = pose[who];
    if (!change || age_s >= 1 || !tops[who]) continue;
    ink.globalAlpha = Math.min(2 * (1 - age_s), 1);
    const shade = rgb(change > 0 ? "HEAL" : who === "player" ? "LOST" : "LANDED"), sign = change > 0 ? "+" : "";
    words(ink, `${sign}${change.toFixed(0)}`, tops[who][0] + 24, tops[who][1] + 24 - 30 * age_s, shade, 20, "left");
    ink.globalAlpha = 1;
  }
}

function drawGhostLabel(ink, top) {
  if (top) words(ink, replay.meta.ghost.label, top[0], top[1] - 4, rgb("PLAYER_HEAD"), 13);
}

function drawBars(ink, row, width, height) {
  const { meta } = replay;
  // HP count from where their owner has lost to where the fight begins.
  const part = (name) => raw(row, name) / Math.max(raw(row, `${name}_MAX`), 1);
  const share = (name, [low, high] = [0, 1]) => (part(name) - low) / (high - low);
  bar(ink, 10, 10, 0.36 * width, 9, share("PLAYER_HP", meta.hpWindows[0]), "HP");
  bar(ink, 10, 24, 0.36 * width, 9, share("STAMINA"), "STAMINA");
  const points = (name, unit) => `${number(Math.max(raw(row, name), 0), 0)} ${unit}`;
  words(ink, points("PLAYER_HP", "HP"), 0.36 * width + 18, 19, rgb("TEXT"), 12, "left");
  words(ink, points("STAMINA", "stamina"), 0.36 * width + 18, 33, rgb("TEXT"), 12, "left");
  const flasks = raw(row, "FLASKS");
  words(ink, `${Number.isFinite(flasks) ? flasks : "?"} flask${flasks === 1 ? "" : "s"}`, 10, 50, rgb("FLASK"), 12, "left");
  const left = width / 6, wide = width - width / 3, low = height - 20;
  bar(ink, left, low, wide, 9, share("BOSS_HP", meta.hpWindows[1]), "HP");
  words(ink, meta.boss, left, low - 6, rgb("TEXT"), 12, "left");
  words(ink, points("BOSS_HP", "HP"), left + wide, low - 6, rgb("TEXT"), 12, "right");
  if (row === replay.rows - 1 && !replay.ghost) {
    ink.fillStyle = "rgba(14,14,18,.75)";
    ink.fillRect(0, height / 2 - 30, width, 52);
    words(ink, meta.outcome.toUpperCase(), width / 2, height / 2 + 8, rgb(meta.outcome === "won" ? "WON" : "DIED"), 32);
  }
}

// ---- the tracks over time --------------------------------------------------------------------------------------

const TRACK = 48, LABEL = 112, AXIS = 22, EVERY_S = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600];

function tracksHeight() {
  return TRACK * 2 + replay.meta.skills.length * TRACK + AXIS;
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
  const style = getComputedStyle(document.documentElement), css = (name) => style.getPropertyValue(`--${name}`).trim();
  ink.fillStyle = css("back");
  ink.fillRect(0, 0, width, tracksHeight());
  const label = (text, top, colour = css("ink"), drop = 16, x = 4, anchor = "left") => {
    ink.fillStyle = colour;
    ink.textAlign = anchor;
    ink.font = `${anchor === "left" ? 12 : 10}px system-ui, sans-serif`;
    ink.fillText(text, x, top + drop);
  };
  const scale = (top, low, high) => {
    label(high, top, css("faint"), 11, LABEL - 4, "right");
    label(low, top, css("faint"), TRACK - 4, LABEL - 4, "right");
  };
  const share = (name) => everyRow((row) => raw(row, name) / Math.max(raw(row, `${name}_MAX`), 1));
  label("player HP", 0, css("player"));
  label("boss HP", 0, css("boss"), 32);
  scale(0, "0 %", "100 %");
  line(ink, share("PLAYER_HP"), LABEL, 0, wide, css("player"), 0, 1);
  line(ink, share("BOSS_HP"), LABEL, 0, wide, css("boss"), 0, 1);
  label("boss strikes", TRACK, rgb("STRIKE"));
  label("cannot be hit", TRACK, css("safe"), 32);
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
  stripes(TRACK + 24, 12, (row) => (at("invulnerable", row) ? css("safe") : null));
  replay.meta.skills.forEach((skill, index) => {
    const top = (2 + index) * TRACK, count = skill.actions.length;
    label(skill.name.replaceAll("_", " "), top);
    label(skill.valued ? "best value" : "actions", top, css("faint"), 32);
    stripes(top + 3, TRACK - 6, (row) => {
      const action = at(`${skill.name}/action`, row);
      return action < 0 ? null : actionColour(action, count);
    });
    if (!skill.valued) return;
    const best = everyRow((row) => Math.max(...skill.actions.map((_, one) => at(`${skill.name}/values`, row, one))));
    const finite = best.filter(Number.isFinite);
    const [low, high] = [Math.min(...finite), Math.max(...finite)];
    line(ink, best, LABEL, top, wide, css("ink"), low, high);
    scale(top, short(low), short(high));
  });
  ink.fillStyle = css("line");
  for (let top = TRACK; top <= tracksHeight() - AXIS; top += TRACK) ink.fillRect(0, top, width, 1);
  drawAxis(label, css("faint"), wide);
  return drawn;
}

const short = (value) => (Number.isFinite(value) ? value.toPrecision(3) : "");
const actionColour = (action, count) => `hsl(${(360 * action) / count} ${dark() ? "45% 32%" : "55% 82%"})`;

// Seconds below the tracks, as many as there is room for.
function drawAxis(label, colour, wide) {
  const last = replay.rows - 1, end_s = at("time_s", last), begin_s = at("time_s", 0);
  const step_s = EVERY_S.find((one) => (wide * one) / Math.max(end_s - begin_s, 0.1) >= 44) || 1200;
  for (let row = 0, due_s = begin_s; row < last; row += 1) {
    if (at("time_s", row) < due_s - 1e-6) continue;
    const x = LABEL + (row / replay.rows) * wide;
    const anchor = row ? "center" : "start";
    if (x < LABEL + wide - 16) label(`${due_s.toFixed(0)} s`, tracksHeight() - AXIS, colour, 15, x, anchor);
    due_s += step_s;
  }
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
        const made = element("tr"), value = element("td"), named = element("td");
        if (title.startsWith("actions")) named.append(element("i", undefined, "swatch"));
        named.append(name);
        made.append(named, value);
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

const VIEWS = ["orbit", "game", "top", "flat"], SPEEDS = [0.25, 0.5, 1, 2, 4];
// Without a GPU the pixels take the time: after so many slow pictures in a row the next ones that play are coarser.
const SLOW_MS = 60, SLOW_FRAMES = 3, LEAST_SHARP = 0.25;
let playing = 0;

// The last moment that can be shown: with the other course in the picture that may end later.
function end() {
  const { ghost } = replay.meta;
  return Math.max(replay.rows - 1, replay.ghost && ghost ? ghost.first + ghost.rows - 1 : 0);
}

function drawPicture() {
  const fight = find("fight"), ink = fight.getContext("2d"), [width, height] = replay.size, ratio = fight.width / width;
  ink.setTransform(ratio, 0, 0, ratio, 0, 0);
  drawFight(ink, replay.moment, width, height);
}

// Show a moment, counted in rows; the numbers are those of its row.
function show(moment) {
  replay.moment = Math.min(Math.max(moment, 0), end());
  const row = Math.min(Math.floor(replay.moment), replay.rows - 1), share = (replay.moment + 0.5) / replay.rows;
  drawPicture();
  const x = LABEL + Math.min(share, 1) * (replay.width - LABEL) - 1;
  find("cursor").style.transform = `translateX(${x}px)`;
  find("slider").value = Math.floor(replay.moment);
  if (replay.row !== row || !replay.filled) fill(row);
  const time_s = at("time_s", row), later = Math.max(replay.moment - replay.rows + 1, 0) * rowLength(row);
  const ghost = later ? `, ghost ${(time_s + later).toFixed(1)} s` : "";
  write(find("time"), `tick ${row} of ${replay.rows - 1}, ${time_s.toFixed(1)} s${ghost}`);
}
replay.show = show;

function fill(row) {
  const { meta } = replay;
  [replay.row, replay.filled] = [row, true];
  const held = meta.controls.filter((_, bit) => at("controls", row) & (1 << bit)).map((one) => one.replaceAll("_", " "));
  const player = meta.words[at("player_doing", row)], safe = at("invulnerable", row) ? ", cannot be hit" : "";
  write(find("boss-doing"), bossWords(row)[0] || "-");
  write(find("player-doing"), `${player || "-"}${safe}`);
  write(find("held"), held.join(", ") || "-");
  for (const column of columns) fillSkill(column, row);
}

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

// How long a row lasts, in seconds: a recording may have a row a tick, or one a decision.
function rowLength(row) {
  const first = Math.min(row, Math.max(replay.rows - 2, 0));
  return Math.max(at("time_s", Math.min(first + 1, replay.rows - 1)) - at("time_s", first), 1e-3);
}

// Draw with this share of the screen's pixels along each side, at most two for each of the page's; letters keep one.
function sharpen(share) {
  const ratio = share * Math.min(window.devicePixelRatio || 1, 2), fight = find("fight");
  replay.sharp = share;
  replay.stage?.size(...replay.size, ratio);
  [fight.width, fight.height] = replay.size.map((side) => Math.round(side * Math.max(ratio, 1)));
}

function play(on) {
  window.cancelAnimationFrame(playing);
  playing = 0;
  if (replay.sharp !== 1) fit();
  let before = performance.now(), slow = 0;
  const frame = (now) => {
    const passed_s = (replay.speed * Math.max(now - before, 0)) / 1000;
    slow = now - before > SLOW_MS ? slow + 1 : 0;
    if (slow > 0 && slow % SLOW_FRAMES === 0 && replay.sharp > LEAST_SHARP) sharpen(replay.sharp / 2);
    before = now;
    show(replay.moment + passed_s / rowLength(Math.floor(replay.moment)));
    playing = replay.moment < end() ? window.requestAnimationFrame(frame) : 0;
    if (!playing) play(false);
  };
  if (on && replay.moment >= end()) show(0);
  if (on) playing = window.requestAnimationFrame(frame);
  find("play").textContent = on ? "pause" : "play";
}

// A step leads to a whole row.
function step(rows) {
  show((rows < 0 ? Math.ceil(replay.moment) : Math.floor(replay.moment)) + rows);
}

function choose(name) {
  replay.view = replay.stage ? name : "flat";
  for (const one of VIEWS) find(`view-${one}`).setAttribute("aria-pressed", one === replay.view);
  find("stage").hidden = replay.view === "flat";
  drawPicture();
}
replay.choose = choose;

function setSpeed(speed) {
  replay.speed = speed;
  find("speed").value = String(speed);
}

function setGhost(on) {
  if (!replay.meta.ghost) return;
  replay.ghost = find("ghost").checked = on;
  find("slider").max = end();
  show(replay.moment);
}

function dark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : window.matchMedia("(prefers-color-scheme: dark)").matches;
}

function setTheme(name) {
  if (name) document.documentElement.dataset.theme = name;
  find("theme").textContent = dark() ? "light" : "dark";
  fit();
  for (const { skill, actions } of columns) {
    actions.forEach(({ made }, action) => {
      made.querySelector(".swatch").style.background = actionColour(action, skill.actions.length);
    });
  }
}

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.tagName === "SELECT") return;
  const rows = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 }[event.key];
  const faster = { ArrowUp: 1, ArrowDown: -1 }[event.key], view = VIEWS[Number(event.key) - 1];
  if (rows) step(rows);
  else if (faster) setSpeed(SPEEDS[SPEEDS.indexOf(replay.speed) + faster] || replay.speed);
  else if (event.key !== " " && view) choose(view);
  else if (event.key === " ") play(!playing);
  else if (event.key === "Home") show(0);
  else if (event.key === "End") show(end());
  else if (event.key === "g") setGhost(!replay.ghost);
  else if (event.key === "d") setTheme(dark() ? "light" : "dark");
  else return;
  event.preventDefault();
}

function listen() {
  find("slider").addEventListener("input", (event) => show(Number(event.target.value)));
  find("play").addEventListener("click", () => play(!playing));
  find("back").addEventListener("click", () => step(-1));
  find("on").addEventListener("click", () => step(1));
  find("speed").addEventListener("change", (event) => setSpeed(Number(event.target.value)));
  find("theme").addEventListener("click", () => setTheme(dark() ? "light" : "dark"));
  for (const one of VIEWS) find(`view-${one}`).addEventListener("click", () => choose(one));
  if (replay.meta.ghost) find("ghost").addEventListener("change", (event) => setGhost(event.target.checked));
  for (const one of document.querySelectorAll("[data-row]")) {
    one.addEventListener("click", () => {
      setGhost(one.dataset.ghost !== undefined);
      show(Number(one.dataset.row));
      if (one.dataset.ghost !== undefined) play(true);
    });
  }
  const tracks = find("tracks");
  const scrub = (event) => {
    if (!event.buttons) return;
    const share = (event.offsetX - LABEL) / (tracks.clientWidth - LABEL);
    show(Math.floor(Math.min(share, 1) * replay.rows));
  };
  tracks.addEventListener("pointerdown", scrub);
  tracks.addEventListener("pointermove", scrub);
  document.addEventListener("keydown", pressed);
  window.addEventListener("resize", fit);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => setTheme());
}

function fit() {
  const ratio = window.devicePixelRatio || 1, tracks = find("tracks");
  const wide = find("picture").clientWidth, [across, high] = replay.meta.size;
  replay.size = [wide, Math.round((wide * high) / across)];
  sharpen(1);
  const width = Math.max(tracks.parentElement.clientWidth, 300);
  replay.width = width;
  tracks.style.height = `${tracksHeight()}px`;
  [tracks.width, tracks.height] = [width * ratio, tracksHeight() * ratio];
  tracks.getContext("2d").drawImage(drawTracks(width), 0, 0);
  replay.filled = false;
  show(replay.moment);
}

// Without WebGL the fight is drawn flat, and the page says so.
function raise() {
  replay.stage = makeStage(find("stage"), find("fight"), replay.meta, drawPicture);
  find("no-stage").hidden = Boolean(replay.stage);
  for (const one of VIEWS) find(`view-${one}`).disabled = !replay.stage && one !== "flat";
  replay.view = replay.stage ? "orbit" : "flat";
}

replay.ready = unpack().then(() => {
  buildSkills();
  find("slider").max = replay.rows - 1;
  raise();
  listen();
  replay.moment = Number(window.location.hash.slice(1)) || 0; // page.html#120 opens at tick 120
  setTheme();
  choose(replay.view);
  return true;
});
