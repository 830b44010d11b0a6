"use strict";
// A fight in three dimensions: bodies, weapons, hit areas and ways on the arena's floor, seen by one of three cameras.
// The game's axes are x and y on the floor and z up, in metres; a point (x, y, z) of it is (x, z, -y) here. A figure
// looks along its own x, and angles to the left of that turn around its y.

const makeStage = (() => {
  // Sizes of a figure in radii of its body, and how its weapon is held: to the left of ahead, and above the level.
  const TALL = 4.4, SHOULDER = 2.7, HEAD = 0.5, DEPTH = 0.62;
  const HALBERD = { turn: -0.9, pitch: 0.8, length: 2.4 }, SWORD = { turn: -0.6, pitch: 0.35, length: 2.3 };
  // The player's sword swings from its right to its left within these shares of an animation around its blow.
  const SWING = { first: -1.9, last: 1.3, before: 0.22, after: 0.14, length: 3.2 };
  // With half of an arc below this a weapon thrusts; a raised one points this far up, and comes down this low.
  const THRUST_RAD = 0.6, RAISED_RAD = 0.9, LOW_M = 0.35, TRAIL = 0.45, STRIPS = 14;
  const WAY = 18, TILE_M = 2, FIELD_DEG = 50, GHOST = 0.34;
  // Where the game's camera is: this far behind the player, and this high. A State holds only where it looks.
  const BEHIND_M = 5, ABOVE_M = 1.6;

  const mix = (from, to, share) => from + share * (to - from);
  const within = (value, low, high) => Math.min(Math.max(value, low), high);
  const place = (x, y, z) => new THREE.Vector3(x, z, -y);
  const colourOf = ([red, green, blue]) => new THREE.Color().setRGB(red / 255, green / 255, blue / 255, "srgb");

  function solid(colour, alpha) {
    return new THREE.MeshLambertMaterial({ color: colourOf(colour), transparent: alpha < 1, opacity: alpha });
  }

  function glowing(colour, alpha) {
    const shown = { color: colourOf(colour), transparent: true, opacity: alpha, depthWrite: false };
    return new THREE.MeshBasicMaterial({ ...shown, side: THREE.DoubleSide });
  }

  // A flat shape on the floor; `layer` keeps those that lie on each other apart.
  function flat(geometry, material, layer) {
    const made = new THREE.Mesh(geometry, material);
    made.rotation.x = -Math.PI / 2;
    made.position.y = 0.01 * layer;
    made.renderOrder = layer;
    return made;
  }

  function part(geometry, material, x, y, parent) {
    const made = new THREE.Mesh(geometry, material);
    made.position.set(x, y, 0);
    parent.add(made);
    return made;
  }

  // ---- figures -------------------------------------------------------------------------------------------------

  // A weapon of unit length along x: its shaft is stretched, what is at its end is moved.
  function makeWeapon(radius, colours, alpha, long) {
    const pivot = new THREE.Group(), material = solid(long ? colours.HALBERD : colours.STEEL, alpha);
    pivot.rotation.order = "YXZ";
    pivot.position.y = SHOULDER * radius;
    const thick = long ? [0.1, 0.1] : [0.07, 0.2];
    const shaft = part(new THREE.BoxGeometry(1, thick[1] * radius, thick[0] * radius), material, 0, 0, pivot);
    const steel = solid(colours.STEEL, alpha), end = new THREE.Group();
    pivot.add(end);
    if (long) {
      part(new THREE.ConeGeometry(0.16 * radius, 0.7 * radius, 4), steel, 0, 0, end).rotation.z = -Math.PI / 2;
      const axe = new THREE.BoxGeometry(0.45 * radius, 0.75 * radius, 0.06 * radius);
      part(axe, steel, -0.5 * radius, -0.25 * radius, end);
    } else {
      part(new THREE.BoxGeometry(0.1 * radius, 0.3 * radius, 0.75 * radius), solid(colours.SHIELD, alpha), 0, 0, pivot)
        .position.x = 0.75 * radius;
    }
    const hold = ({ turn, pitch, length }) => {
      const hand = 0.5 * radius;
      pivot.rotation.set(0, turn, pitch);
      shaft.scale.x = length - hand;
      shaft.position.x = (length + hand) / 2;
      end.position.x = length;
    };
    return { pivot, hold };
  }

  // What a weapon has just swept over: a strip between two angles, near its end.
  function makeSweep(radius, colours) {
    const geometry = new THREE.BufferGeometry(), points = new Float32Array(6 * (STRIPS + 1)), corners = [];
    for (let one = 0; one < 2 * STRIPS; one += 2) corners.push(one, one + 1, one + 2, one + 1, one + 3, one + 2);
    geometry.setAttribute("position", new THREE.BufferAttribute(points, 3));
    geometry.setIndex(corners);
    const mesh = new THREE.Mesh(geometry, glowing(colours.LANDED, 0.45));
    mesh.frustumCulled = false;
    const show = ({ turn, pitch, length, trail }) => {
      mesh.visible = trail !== undefined && trail !== turn;
      if (!mesh.visible) return;
      for (let strip = 0; strip <= STRIPS; strip += 1) {
        const angle = mix(trail, turn, strip / STRIPS);
        // It narrows towards where the weapon came from.
        [mix(1, 0.6, strip / STRIPS), 1].forEach((share, side) => {
          const level = share * length * Math.cos(pitch), high = SHOULDER * radius + share * length * Math.sin(pitch);
          points.set([level * Math.cos(angle), high, -level * Math.sin(angle)], 6 * strip + 3 * side);
        });
      }
      geometry.attributes.position.needsUpdate = true;
    };
    return { mesh, show };
  }

  function makeFigure(radius, who, colours, alpha) {
    const group = new THREE.Group(), body = new THREE.Group(), boss = who === "boss";
    const skin = solid(boss ? colours.BOSS : colours.PLAYER, alpha);
    const face = solid(boss ? colours.BOSS_HEAD : colours.PLAYER_HEAD, alpha);
    const trunk = part(new THREE.CapsuleGeometry(0.8 * radius, 1.5 * radius, 6, 20), skin, 0, 1.75 * radius, body);
    trunk.scale.set(DEPTH, 1, 1);
    const shoulders = part(new THREE.SphereGeometry(radius, 20, 12), skin, 0, SHOULDER * radius, body);
    shoulders.scale.set(DEPTH, 0.42, 1);
    part(new THREE.SphereGeometry(HEAD * radius, 20, 14), face, 0.1 * radius, 3.6 * radius, body);
    const nose = new THREE.ConeGeometry(0.14 * radius, 0.4 * radius, 10);
    const drink = new THREE.SphereGeometry(0.3 * radius, 14, 10);
    part(nose, solid(colours.NOSE, alpha), 0.68 * radius, 3.6 * radius, body).rotation.z = -Math.PI / 2;
    const flask = part(drink, solid(colours.FLASK, alpha), 0.85 * radius, 3.4 * radius, body);
    const weapon = makeWeapon(radius, colours, alpha, boss), sweep = makeSweep(radius, colours);
    body.add(weapon.pivot);
    group.add(body, sweep.mesh, flat(new THREE.CircleGeometry(1.1 * radius, 28), glowing([0, 0, 0], 0.35 * alpha), 3));
    const struck = colourOf(boss ? colours.LANDED : colours.LOST);
    const pose = (seen, held) => {
      group.position.copy(place(seen.x, seen.y, seen.z));
      const { heading } = seen;
      group.rotation.y = Number.isFinite(heading) ? Math.atan2(-Math.cos(heading), -Math.sin(heading)) : 0;
      const rolls = seen.doing === "rolls";
      // A roll goes once over its head, low above the floor; who has fallen lies.
      body.rotation.z = seen.fallen ? Math.PI / 2 : rolls ? -2 * Math.PI * seen.progress : 0;
      body.scale.setScalar(rolls ? 0.62 : 1);
      const middle = rolls ? 1.2 * radius : seen.fallen ? DEPTH * radius : 0;
      const low = rolls ? 2 * 0.62 * radius : 0;
      body.position.set(low * Math.sin(body.rotation.z), middle - low * Math.cos(body.rotation.z), 0);
      weapon.pivot.visible = !rolls;
      flask.visible = seen.doing === "drinks";
      skin.emissive.copy(struck).multiplyScalar(seen.struck ? 0.7 : 0);
      weapon.hold(held);
      sweep.show(rolls || seen.fallen ? {} : held);
    };
    return { group, pose, radius };
  }

  // How the boss holds its weapon: raised before a window opens, through its arc or straight ahead while it is open.
  function bossHold({ boss, areas }, radius) {
    const rest = { ...HALBERD, length: HALBERD.length * radius };
    if (!areas.length) return rest;
    const [area] = areas, half = Math.min(area.half, Math.PI), thrusts = half < THRUST_RAD;
    const reach = Math.max(area.offset + area.reach, rest.length);
    const low = -Math.asin(within((SHOULDER * radius - LOW_M) / reach, 0, 0.9)), up = thrusts ? 0.1 : RAISED_RAD;
    if (!area.open) {
      const raised = area.wound ** 2, turn = thrusts ? 0 : half, length = thrusts ? rest.length : 0.7 * reach;
      const held = { turn: mix(rest.turn, turn, raised), pitch: mix(rest.pitch, up, raised) };
      return { ...held, length: mix(rest.length, length, raised) };
    }
    const share = shareOf(boss), fast = Math.min(3 * share, 1), pitch = mix(up, 0.6 * low, fast);
    if (thrusts) return { turn: 0, pitch, length: mix(rest.length, reach, fast) };
    const turn = half * (1 - 2 * share);
    return { turn, pitch, length: reach, trail: turn + Math.min(2 * half * TRAIL, half - turn) };
  }

  // How much of the open window has passed.
  function shareOf({ parts, progress }) {
    const found = parts.find(([, last]) => progress < last);
    return found ? within((progress - found[0]) / Math.max(found[1] - found[0], 1e-6), 0, 1) : 1;
  }

  function playerHold({ player }, radius) {
    const rest = { ...SWORD, length: SWORD.length * radius };
    const share = (player.progress - player.moment + SWING.before) / (SWING.before + SWING.after);
    if (!(player.moment >= 0 && share >= 0 && share <= 1) || player.doing === "drinks") return rest;
    const turn = mix(SWING.first, SWING.last, share);
    const trail = turn - Math.min(share, TRAIL) * (SWING.last - SWING.first);
    return { turn, pitch: mix(0.5, -0.3, share), length: SWING.length * radius, trail };
  }

  // ---- the floor -----------------------------------------------------------------------------------------------

  function tiles(colours, radius) {
    const drawn = document.createElement("canvas"), ink = drawn.getContext("2d"), side = 64;
    [drawn.width, drawn.height] = [2 * side, 2 * side];
    const css = (name) => `rgb(${colours[name].join(",")})`;
    ink.fillStyle = css("FLOOR");
    ink.fillRect(0, 0, 2 * side, 2 * side);
    ink.fillStyle = css("TILE");
    for (const corner of [0, side]) ink.fillRect(corner, corner, side, side);
    const texture = new THREE.CanvasTexture(drawn);
    texture.colorSpace = THREE.SRGBColorSpace;
    texture.wrapS = texture.wrapT = THREE.RepeatWrapping;
    texture.repeat.setScalar(radius / TILE_M);
    texture.anisotropy = 8;
    return texture;
  }

  function makeFloor({ arena, colours }) {
    const group = new THREE.Group(), map = tiles(colours, arena.radius);
    group.add(flat(new THREE.CircleGeometry(arena.radius, 96), new THREE.MeshLambertMaterial({ map }), 0));
    const edge = new THREE.CylinderGeometry(arena.radius + 0.3, arena.radius + 0.3, 0.5, 96, 1, true);
    const stone = { color: colourOf(colours.EDGE), side: THREE.DoubleSide };
    const wall = new THREE.Mesh(edge, new THREE.MeshLambertMaterial(stone));
    wall.position.y = 0.05;
    group.add(wall);
    group.position.copy(place(arena.x, arena.y, 0));
    return group;
  }

  // Sectors ahead of the boss; shapes are kept by their arc, as a fight has few.
  function makeAreas(colours) {
    const group = new THREE.Group(), shapes = new Map(), pool = [];
    const shape = (half) => {
      const key = half.toFixed(3), arc = Math.min(half, Math.PI);
      if (!shapes.has(key)) shapes.set(key, new THREE.CircleGeometry(1, 48, -arc, 2 * arc));
      return shapes.get(key);
    };
    const materials = { open: glowing(colours.STRIKE, 0.6), wound: glowing(colours.WIND_UP, 0.3) };
    const sector = (number, area, radius, material) => {
      if (!pool[number]) group.add((pool[number] = flat(shape(area.half), material, 2)));
      const mesh = pool[number];
      [mesh.geometry, mesh.material, mesh.visible] = [shape(area.half), material, true];
      mesh.scale.setScalar(Math.max(radius, 1e-3));
      mesh.position.x = area.offset;
    };
    const show = (areas) => {
      for (const mesh of pool) mesh.visible = false;
      areas.forEach((area, number) => {
        sector(2 * number, area, area.reach, area.open ? materials.open : materials.wound);
        if (!area.open) sector(2 * number + 1, area, area.reach * area.wound, materials.wound);
      });
    };
    return { group, show };
  }

  // Where a figure came from: discs that grow towards where it is.
  function makeWay(radius, colour) {
    const discs = new THREE.InstancedMesh(new THREE.CircleGeometry(0.5 * radius, 14), glowing(colour, 0.4), WAY);
    const level = new THREE.Quaternion().setFromEuler(new THREE.Euler(-Math.PI / 2, 0, 0)), matrix = new THREE.Matrix4();
    discs.frustumCulled = false;
    const show = (points) => {
      discs.count = Math.min(points.length, WAY);
      for (let index = 0; index < discs.count; index += 1) {
        const [x, y, z] = points[index], share = (index + 1) / (discs.count + 1);
        matrix.compose(place(x, y, z + 0.015), level, new THREE.Vector3().setScalar(0.3 + 0.7 * share));
        discs.setMatrixAt(index, matrix);
      }
      discs.instanceMatrix.needsUpdate = true;
    };
    return { discs, show };
  }

  function makeLock(colour) {
    const geometry = new THREE.BufferGeometry().setFromPoints([new THREE.Vector3(), new THREE.Vector3()]);
    const shown = { color: colourOf(colour), dashSize: 0.3, gapSize: 0.25 };
    const line = new THREE.Line(geometry, new THREE.LineDashedMaterial(shown));
    const mark = new THREE.Mesh(new THREE.SphereGeometry(0.13, 14, 10), new THREE.MeshBasicMaterial(
      { color: colourOf(colour), depthTest: false },
    ));
    line.frustumCulled = false;
    const show = (locked, from, to) => {
      line.visible = mark.visible = locked;
      if (!locked) return;
      geometry.setFromPoints([from, to]);
      line.computeLineDistances();
      mark.position.copy(to);
    };
    return { line, mark, show };
  }

  // ---- cameras -------------------------------------------------------------------------------------------------

  // Each puts the camera for what is seen; `held` is what the reader turned and zoomed.
  const CAMERAS = {
    orbit(camera, { player, boss }, held) {
      const middle = place((player.x + boss.x) / 2, (player.y + boss.y) / 2, (player.z + boss.z) / 2 + 1.7);
      const far = held.zoom * (8 + 0.9 * Math.hypot(player.x - boss.x, player.y - boss.y));
      const level = Math.cos(held.pitch);
      const offset = new THREE.Vector3(level * Math.cos(held.yaw), Math.sin(held.pitch), level * Math.sin(held.yaw));
      camera.up.set(0, 1, 0);
      camera.position.copy(middle).addScaledVector(offset, far);
      camera.lookAt(middle);
    },
    game(camera, { player, ahead }, held) {
      const eye = place(player.x, player.y, player.z + ABOVE_M), [x, y, z] = ahead;
      camera.up.set(0, 1, 0);
      camera.position.copy(eye).addScaledVector(place(x, y, z), -BEHIND_M * held.zoom);
      camera.position.y = Math.max(camera.position.y, player.z + 0.4);
      camera.lookAt(camera.position.clone().add(place(x, y, z)));
    },
    top(camera, { player, boss, ahead }, held) {
      const middle = place((player.x + boss.x) / 2, (player.y + boss.y) / 2, 0), level = Math.hypot(ahead[0], ahead[1]);
      const shown = Math.max(7 + Math.hypot(player.x - boss.x, player.y - boss.y), 14);
      const far = (held.zoom * shown) / (2 * Math.tan((FIELD_DEG * Math.PI) / 360));
      camera.up.copy(level > 0 ? place(ahead[0], ahead[1], 0) : new THREE.Vector3(0, 0, -1));
      camera.position.copy(middle);
      camera.position.y += far;
      camera.lookAt(middle);
    },
  };

  // A drag turns the camera that goes around, the wheel and two fingers bring every camera nearer.
  function turnable(target, held, changed) {
    const fingers = new Map();
    const spread = () => {
      const [one, other] = [...fingers.values()];
      return other ? Math.hypot(one.x - other.x, one.y - other.y) : 0;
    };
    const zoom = (factor) => { held.zoom = within(held.zoom * factor, 0.3, 4); };
    target.addEventListener("pointerdown", (event) => {
      fingers.set(event.pointerId, { x: event.clientX, y: event.clientY });
      target.setPointerCapture(event.pointerId);
    });
    target.addEventListener("pointermove", (event) => {
      const before = fingers.get(event.pointerId), apart = spread();
      if (!before) return;
      if (fingers.size === 1) {
        held.yaw += 0.008 * (event.clientX - before.x);
        held.pitch = within(held.pitch + 0.006 * (event.clientY - before.y), 0.05, 1.5);
      }
      fingers.set(event.pointerId, { x: event.clientX, y: event.clientY });
      if (fingers.size === 2 && apart > 0) zoom(apart / Math.max(spread(), 1));
      changed();
    });
    for (const name of ["pointerup", "pointercancel"]) {
      target.addEventListener(name, (event) => fingers.delete(event.pointerId));
    }
    target.addEventListener("wheel", (event) => {
      event.preventDefault();
      zoom(Math.exp(0.0012 * event.deltaY));
      changed();
    }, { passive: false });
  }

  // ---- the whole -----------------------------------------------------------------------------------------------

  function makePair(meta, scene, alpha) {
    const { colours } = meta;
    const player = makeFigure(meta.playerRadius, "player", colours, alpha);
    const bosses = new Map();
    const bossOf = (radius) => {
      if (!bosses.has(radius)) {
        bosses.set(radius, makeFigure(radius, "boss", colours, alpha));
        scene.add(bosses.get(radius).group);
      }
      for (const [one, figure] of bosses) figure.group.visible = one === radius;
      return bosses.get(radius);
    };
    scene.add(player.group);
    const show = (seen) => {
      player.group.visible = Boolean(seen);
      for (const figure of bosses.values()) figure.group.visible = false;
      if (!seen) return null;
      const boss = bossOf(seen.bossRadius);
      boss.pose(seen.boss, bossHold(seen, boss.radius));
      player.pose(seen.player, playerHold(seen, player.radius));
      return boss;
    };
    return { player, show };
  }

  // Return what draws moments into a canvas, null where the browser has no WebGL. `target` is dragged.
  return function makeStage(canvas, target, meta, changed) {
    const context = canvas.getContext("webgl2", { antialias: true });
    if (!context) return null;
    const renderer = new THREE.WebGLRenderer({ canvas, context });
    const scene = new THREE.Scene(), camera = new THREE.PerspectiveCamera(FIELD_DEG, 1.5, 0.1, 400);
    const { colours } = meta, held = { yaw: meta.yaw, pitch: 0.42, zoom: 1 };
    scene.background = colourOf(colours.ABYSS);
    const sun = new THREE.DirectionalLight(0xffffff, 2.2);
    sun.position.set(-6, 14, 8);
    scene.add(new THREE.HemisphereLight(0xffffff, 0x887766, 1.7), sun, makeFloor(meta));
    const pair = makePair(meta, scene, 1), ghosts = makePair(meta, scene, GHOST);
    const areas = makeAreas(colours), lock = makeLock(colours.LOCK);
    const ways = [makeWay(meta.playerRadius, colours.PLAYER), makeWay(meta.bossRadius, colours.BOSS)];
    const safe = flat(new THREE.RingGeometry(1.6 * meta.playerRadius, 2.4 * meta.playerRadius, 40),
      glowing(colours.SAFE, 0.85), 4);
    scene.add(areas.group, lock.line, lock.mark, safe, ...ways.map((way) => way.discs));
    turnable(target, held, changed);
    const size = (width, height, ratio) => {
      renderer.setPixelRatio(ratio);
      renderer.setSize(width, height, false);
      camera.aspect = width / height;
      camera.updateProjectionMatrix();
    };
    const draw = (seen, ghost, name) => {
      const boss = pair.show(seen);
      ghosts.show(ghost);
      areas.group.position.copy(boss.group.position);
      areas.group.rotation.copy(boss.group.rotation);
      areas.show(seen.areas);
      ways.forEach((way, index) => way.show(seen.ways[index]));
      safe.visible = seen.safe;
      safe.position.set(seen.player.x, seen.player.z + 0.04, -seen.player.y);
      const at = (figure) => figure.group.position.clone().setY(figure.group.position.y + SHOULDER * figure.radius);
      lock.show(seen.locked, at(pair.player), at(boss));
      CAMERAS[name](camera, seen, held);
      renderer.render(scene, camera);
    };
    // Where the top of a figure is seen, in shares of the picture from its upper left corner; null behind the camera.
    const above = ({ x, y, z }, radius) => {
      const point = place(x, y, z + TALL * radius).project(camera);
      return point.z > 1 ? null : [(point.x + 1) / 2, (1 - point.y) / 2];
    };
    return { size, draw, above, held };
  };
})();
