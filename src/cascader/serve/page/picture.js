// Pictures of a rank after each tier, on a logarithmic scale with rank 1 on top.

import { drawn } from "./dom.js";
import { count } from "./words.js";

const SERIES = 6;
const AXIS = 34; // between the numbers of the scale and the first dot

/** The class that gives a tier its color, the same as in the report. */
export const colorOf = (place) => `series-${place % SERIES}`;

/** A line of dots, one for each tier, each with its rank; `worst` is the rank at the bottom. */
export function rankPicture(trace, worst, places, size) {
  const { width, height, left = 20, right = 20, top = 12, bottom = 12, names = false } = size;
  const across = (step) => (trace.length === 1 ? width / 2 : left + (step * (width - left - right)) / (trace.length - 1));
  const down = (rank) => top + ((height - top - bottom) * Math.log(rank)) / Math.log(Math.max(worst, 10));
  const points = trace.map((step, place) => ({ ...step, x: across(place), y: down(step.rank) }));
  const picture = drawn("svg", {
    viewBox: `0 0 ${width} ${height}`,
    width,
    height,
    class: "rank-picture",
    role: "img",
    "aria-label": points.map((point) => `rank ${count(point.rank)} after ${point.tier}`).join(", "),
  });
  for (let decade = 1; decade <= Math.max(worst, 10); decade *= 10) {
    picture.append(drawn("line", { x1: names ? left - AXIS : 0, x2: width, y1: down(decade), y2: down(decade), class: "decade" }));
    if (names) picture.append(label(left - AXIS - 6, down(decade) + 3.5, count(decade), "end", "soft"));
  }
  picture.append(drawn("polyline", { points: points.map(({ x, y }) => `${x},${y}`).join(" "), class: "climb" }));
  for (const point of points) {
    const isHigh = point.y < height / 2;
    const look = `${colorOf(places.get(point.tier) ?? 0)}${point.pruned ? " unread" : ""}`;
    picture.append(drawn("circle", { cx: point.x, cy: point.y, r: names ? 4.5 : 3.5, class: look }));
    picture.append(label(point.x, point.y + (isHigh ? 15 : -8), count(point.rank), "middle", ""));
    // Neighbors on two lines: with many tiers, their names would overlap.
    const line = points.length > 4 && points.indexOf(point) % 2 ? 14 : 2;
    if (names) picture.append(label(point.x, height - line, point.tier, "middle", "soft"));
  }
  return picture;
}

function label(x, y, text, anchor, look) {
  return drawn("text", { x, y, "text-anchor": anchor, class: look }, text);
}
