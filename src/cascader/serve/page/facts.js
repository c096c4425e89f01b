// The facts that a reason rests on, as a small graph: entities are boxes that lead to questions, relations are arrows.

import { drawn } from "./dom.js";

const WIDTH = 320;
const ROW = 66; // from one row of boxes to the next
const BOX = 28; // the height of a box
const SIDE = 62; // beside the boxes, for the proposed link where it passes other rows
const MOST = 12; // facts: a larger picture says less
const LETTER = 6.7; // the width of a letter, about
let made = 0; // pictures so far: each has its own arrow head

/** Draw facts and, dashed, the `link` that they speak of; `addressOf` returns the address of a question. */
export function factGraph(facts, link, addressOf) {
  const edges = facts.slice(0, MOST);
  const places = placed(edges, link);
  const rows = 1 + Math.max(...[...places.values()].map(({ row }) => row));
  const height = (rows - 1) * ROW + BOX + 4;
  const picture = drawn("svg", {
    viewBox: `0 0 ${WIDTH} ${height}`,
    width: WIDTH,
    height,
    class: "fact-graph",
    role: "group",
    "aria-label": "The facts as a graph",
  });
  const tip = `arrow-${(made += 1)}`;
  picture.append(arrowHead(tip));
  const pairs = new Map();
  for (const fact of edges) {
    const key = [fact.head.id, fact.tail.id].sort().join("\n");
    pairs.set(key, [...(pairs.get(key) ?? []), fact]);
  }
  for (const together of pairs.values()) {
    together.forEach((fact, number) => picture.append(...arrow(fact, places, number - (together.length - 1) / 2, tip)));
  }
  picture.append(...proposed(link, edges, places, tip));
  for (const place of places.values()) picture.append(box(place, link, addressOf));
  return picture;
}

/** Where each entity stands: in the row of its distance from the head; a tail that no fact links to it is right below. */
function placed(facts, link) {
  const entities = new Map([link.head, link.tail, ...facts.flatMap(({ head, tail }) => [head, tail])].map((each) => [each.id, each]));
  const row = new Map();
  spread(link.head.id, 0, facts, row);
  spread(link.tail.id, 1, facts, row);
  for (const id of entities.keys()) if (!row.has(id)) spread(id, Math.max(...row.values()) + 1, facts, row);
  const rows = new Map();
  for (const [id, number] of row) rows.set(number, [...(rows.get(number) ?? []), id]);
  const hasBypass = Math.abs(row.get(link.head.id) - row.get(link.tail.id)) > 1;
  const found = new Map();
  for (const [number, ids] of rows) {
    const room = (WIDTH - (hasBypass ? SIDE : 0)) / ids.length;
    ids.forEach((id, i) => {
      const width = Math.min(150, room - 8);
      found.set(id, { entity: entities.get(id), row: number, x: room * (i + 0.5), y: number * ROW + BOX / 2 + 2, width });
    });
  }
  return found;
}

/** Give an entity a row, and all that facts link to it the rows after that. */
function spread(start, first, facts, row) {
  if (row.has(start)) return;
  row.set(start, first);
  const waiting = [start];
  while (waiting.length > 0) {
    const here = waiting.shift();
    for (const { head, tail } of facts) {
      const other = head.id === here ? tail.id : tail.id === here ? head.id : null;
      if (other === null || row.has(other)) continue;
      row.set(other, row.get(here) + 1);
      waiting.push(other);
    }
  }
}

/** Whether a fact links the same two as the proposed link. */
const links = ({ head, tail }, link) => new Set([head.id, tail.id, link.head.id, link.tail.id]).size <= 2;

function arrowHead(id) {
  const shape = drawn("path", { d: "M0,0 L8,4 L0,8 z", class: "tip" });
  const marker = { id, markerWidth: 8, markerHeight: 8, refX: 7, refY: 4, orient: "auto", markerUnits: "userSpaceOnUse" };
  return drawn("defs", {}, drawn("marker", marker, shape));
}

/** A fact as an arrow with its relation; `shift` sets several between the same two apart. */
function arrow({ head, relation, tail }, places, shift, tip) {
  const [from, to] = [places.get(head.id), places.get(tail.id)];
  if (from === to) return [label(from.x + from.width / 2, from.y + BOX - 4, `${relation.name} ↺`, "end", "relation-name", 24)];
  const [start, end] = ends(from, to, 12 * shift);
  const line = drawn("line", { x1: start.x, y1: start.y, x2: end.x, y2: end.y, class: "fact", "marker-end": `url(#${tip})` });
  const [x, y] = [(start.x + end.x) / 2, (start.y + end.y) / 2];
  if (from.row === to.row) return [line, label(x, y - 5 - 12 * shift, relation.name, "middle", "relation-name", 18)];
  return [line, beside(x, y + 12 * shift, sideOf(x, places) || 1, relation.name, "relation-name")];
}

/** On which side of the picture's middle something stands: -1 is left, 1 is right. */
function sideOf(x, places) {
  const all = [...places.values()].map((place) => place.x);
  const off = x - (Math.min(...all) + Math.max(...all)) / 2;
  return Math.abs(off) < 2 ? 0 : Math.sign(off);
}

/** The label of a line between two rows, on its left or right: on the outer one, lines of the same box keep theirs apart. */
function beside(x, y, side, text, look) {
  const room = side < 0 ? x : WIDTH - x;
  return label(x + 7 * side, y + 4, text, side < 0 ? "end" : "start", look, Math.floor((room - 8) / LETTER));
}

/** Where an arrow leaves one box and reaches the other. */
function ends(from, to, shift) {
  if (from.row === to.row) {
    const way = Math.sign(to.x - from.x) || 1;
    return [{ x: from.x + (way * from.width) / 2, y: from.y + shift }, { x: to.x - (way * to.width) / 2, y: to.y + shift }];
  }
  const way = Math.sign(to.row - from.row);
  return [{ x: from.x + shift, y: from.y + (way * BOX) / 2 }, { x: to.x + shift, y: to.y - (way * BOX) / 2 }];
}

/** The link that is proposed, dashed; around the rows between its ends if there are any. */
function proposed(link, facts, places, tip) {
  const [from, to] = [places.get(link.head.id), places.get(link.tail.id)];
  const look = { class: "proposed", "marker-end": `url(#${tip})` };
  const words = `${link.relation.name}?`;
  if (from === to) return [];
  if (Math.abs(from.row - to.row) <= 1) {
    const [start, end] = ends(from, to, facts.some((fact) => links(fact, link)) ? -12 : 0);
    const [x, y] = [(start.x + end.x) / 2, (start.y + end.y) / 2];
    const line = drawn("line", { x1: start.x, y1: start.y, x2: end.x, y2: end.y, ...look });
    return [line, beside(x, y, sideOf(x, places) || -1, words, "relation-name asked")];
  }
  const [x1, x2] = [from.x + from.width / 2, to.x + to.width / 2];
  const edge = WIDTH - 12;
  const line = drawn("path", { d: `M${x1},${from.y} C${edge},${from.y} ${edge},${to.y} ${x2},${to.y}`, ...look });
  return [line, label(WIDTH - 2, (from.y + to.y) / 2 + 4, words, "end", "relation-name asked", 14)];
}

/** An entity as a box that leads to what can be asked about it. */
function box({ entity, x, y, width }, link, addressOf) {
  const isEnd = entity.id === link.head.id || entity.id === link.tail.id;
  const frame = drawn("rect", { x: x - width / 2, y: y - BOX / 2, width, height: BOX, rx: 4 });
  const name = label(x, y + 4, entity.name, "middle", "", Math.floor((width - 10) / LETTER));
  const title = drawn("title", {}, entity.name);
  return drawn("a", { href: addressOf(entity), class: isEnd ? "entity end" : "entity" }, title, frame, name);
}

function label(x, y, text, anchor, look, most) {
  const shown = text.length <= most ? text : `${text.slice(0, Math.max(1, most - 1)).trimEnd()}…`;
  return drawn("text", { x, y, "text-anchor": anchor, class: look }, shown);
}
