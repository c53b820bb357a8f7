/** Lanes of measured spans on a canvas: packed into rows, drawn for a window of time. */
import { faded, theme } from '../state/theme.svelte';
import { span as spanText } from '../state/format';
import type { SpanRow, StepTime } from '../state/types';

export const ROW = 17;
export const HEAD = 20;
const GAP = 12;
const MOST_ROWS = 14;

export interface Placed { span: SpanRow; row: number; late: boolean }
export interface Lane { name: string; top: number; rows: number; placed: Placed[] }
export interface Layout { lanes: Lane[]; height: number; idle: Interval[] }
export interface Interval { start: number; end: number; blame: string }

const BUSY = new Set(['trainer', 'engine']);

export function layout(spans: SpanRow[], names: string[], now: number, late: Set<number>): Layout {
  const lanes: Lane[] = [];
  let top = HEAD;
  for (const name of names) {
    const mine = spans.filter((span) => span.lane === name).sort((a, b) => a.start - b.start);
    if (!mine.length) continue;
    const ends: number[] = [];
    const placed = mine.map((span): Placed => {
      let row = ends.findIndex((end) => end <= span.start + 1e-6);
      if (row < 0) row = ends.length < MOST_ROWS ? ends.length : ends.indexOf(Math.min(...ends));
      ends[row] = Math.max(ends[row] ?? 0, span.end ?? now);
      return { span, row, late: late.has(span.id) };
    });
    lanes.push({ name, top, rows: ends.length, placed });
    top += ends.length * ROW + GAP;
  }
  return { lanes, height: top, idle: idleIntervals(spans, now) };
}

/** When nothing was sampled or trained, and which lane was busy meanwhile. */
export function idleIntervals(spans: SpanRow[], now: number): Interval[] {
  if (!spans.some((span) => BUSY.has(span.lane))) return [];
  const busy = union(spans.filter((span) => BUSY.has(span.lane)), now);
  const start = Math.min(...spans.map((span) => span.start));
  const stop = Math.max(...spans.map((span) => span.end ?? now));
  const gaps: Interval[] = [];
  let at = start;
  for (const part of [...busy, { start: stop, end: stop }]) {
    if (part.start - at > 1e-3) gaps.push({ start: at, end: part.start, blame: blameOf(spans, at, part.start, now) });
    at = Math.max(at, part.end);
  }
  return gaps;
}

function blameOf(spans: SpanRow[], start: number, end: number, now: number): string {
  const busy = new Map<string, number>();
  for (const span of spans) {
    const overlap = Math.min(end, span.end ?? now) - Math.max(start, span.start);
    if (overlap > 0 && !BUSY.has(span.lane)) busy.set(span.lane, (busy.get(span.lane) ?? 0) + overlap);
  }
  const [first] = [...busy].filter(([lane]) => lane !== 'driver' || busy.size === 1).sort((a, b) => b[1] - a[1]);
  return first?.[0] ?? 'none';
}

function union(spans: SpanRow[], now: number): { start: number; end: number }[] {
  const found: { start: number; end: number }[] = [];
  for (const span of [...spans].sort((a, b) => a.start - b.start)) {
    const last = found.at(-1);
    if (last && span.start <= last.end) last.end = Math.max(last.end, span.end ?? now);
    else found.push({ start: span.start, end: span.end ?? now });
  }
  return found;
}

/** Spans that took more than twice the median of their kind in the same step. */
export function stragglers(spans: SpanRow[]): { span: SpanRow; factor: number }[] {
  const kinds = new Map<string, SpanRow[]>();
  for (const span of spans) {
    if (span.end === null) continue;
    const key = `${span.lane}\n${span.name}\n${span.step}`;
    const known = kinds.get(key);
    if (known) known.push(span);
    else kinds.set(key, [span]);
  }
  const found: { span: SpanRow; factor: number }[] = [];
  for (const kind of kinds.values()) {
    if (kind.length < 4) continue;
    const lengths = kind.map((span) => (span.end as number) - span.start).sort((a, b) => a - b);
    const median = lengths[lengths.length >> 1] ?? 0;
    for (const span of kind) {
      const factor = ((span.end as number) - span.start) / median;
      if (median > 0.001 && factor > 2) found.push({ span, factor });
    }
  }
  return found.sort((a, b) => b.factor - a.factor);
}

export interface View { start: number; stop: number; width: number; selected: number | null }

export function paint(context: CanvasRenderingContext2D, plan: Layout, view: View, steps: StepTime[], now: number): void {
  const scale = view.width / Math.max(1e-9, view.stop - view.start);
  const x = (time: number): number => (time - view.start) * scale;
  const ink = theme.color('text');
  const faint = theme.color('faint');
  context.clearRect(0, 0, view.width, plan.height);
  context.font = '11px Inter, system-ui, sans-serif';
  context.textBaseline = 'middle';
  paintAxis(context, view, plan.height, x, steps);
  hatch(context, plan, x, view);
  plan.lanes.forEach((lane, index) => {
    const color = theme.color(`s${index % 10}`);
    for (const { span, row, late } of lane.placed) {
      const from = Math.max(-4, x(span.start));
      const to = Math.min(view.width + 4, x(span.end ?? now));
      if (to < 0 || from > view.width) continue;
      const y = lane.top + row * ROW;
      const wide = Math.max(1, to - from - (to - from > 4 ? 1 : 0));
      context.fillStyle = faded(color, span.end === null ? 0.3 : 0.62);
      context.fillRect(from, y, wide, ROW - 3);
      if (span.end === null) {
        context.strokeStyle = color;
        context.setLineDash([4, 3]);
        context.strokeRect(from + 0.5, y + 0.5, wide - 1, ROW - 4);
        context.setLineDash([]);
      }
      if (late) {
        context.fillStyle = theme.color('bad');
        context.fillRect(from, y, Math.min(3, wide), ROW - 3);
      }
      if (span.id === view.selected) {
        context.strokeStyle = ink;
        context.lineWidth = 2;
        context.strokeRect(from, y, wide, ROW - 3);
        context.lineWidth = 1;
      }
      if (wide > 44) {
        context.fillStyle = ink;
        const text = `${span.name} ${spanText((span.end ?? now) - span.start)}`;
        const room = wide - 8;
        const label = context.measureText(text).width <= room ? text : fit(context, span.name, room);
        context.fillText(label, Math.max(from, 0) + 5, y + ROW / 2 - 1);
      }
    }
  });
  if (now > view.start && now < view.stop) {
    context.fillStyle = faint;
    context.fillRect(x(now), HEAD, 1, plan.height - HEAD);
  }
}

function fit(context: CanvasRenderingContext2D, text: string, room: number): string {
  const letters = Math.floor((room / Math.max(1, context.measureText(text).width)) * text.length);
  return letters < 3 ? '' : letters >= text.length ? text : `${text.slice(0, letters - 1)}…`;
}

function paintAxis(context: CanvasRenderingContext2D, view: View, height: number, x: (time: number) => number, steps: StepTime[]): void {
  const grid = theme.color('grid');
  context.fillStyle = theme.color('faint');
  let free = -1;
  for (const step of steps) {
    const at = x(step.start);
    if (at < -1 || at > view.width) continue;
    context.fillStyle = grid;
    context.fillRect(at, HEAD - 4, 1, height - HEAD + 4);
    if (at > free) {
      const label = `step ${step.step}`;
      context.fillStyle = theme.color('faint');
      context.fillText(label, at + 4, 10);
      free = at + context.measureText(label).width + 16;
    }
  }
}

/** Idle time is hatched, and so told apart from "nothing recorded" without colour. */
function hatch(context: CanvasRenderingContext2D, plan: Layout, x: (time: number) => number, view: View): void {
  context.save();
  context.strokeStyle = theme.color('hatch');
  context.lineWidth = 1;
  for (const gap of plan.idle) {
    const from = Math.max(0, x(gap.start));
    const to = Math.min(view.width, x(gap.end));
    if (to - from < 1.5) continue;
    for (const lane of plan.lanes.filter((found) => BUSY.has(found.name))) {
      context.save();
      context.beginPath();
      context.rect(from, lane.top, to - from, lane.rows * ROW - 3);
      context.clip();
      context.beginPath();
      const tall = lane.rows * ROW;
      for (let at = from - tall - (from % 6); at < to; at += 6) {
        context.moveTo(at, lane.top + tall);
        context.lineTo(at + tall, lane.top);
      }
      context.stroke();
      context.restore();
    }
  }
  context.restore();
}

export function spanAt(plan: Layout, view: View, px: number, py: number, now: number): Placed | null {
  const time = view.start + (px / view.width) * (view.stop - view.start);
  const slack = ((view.stop - view.start) / view.width) * 2;
  const lane = plan.lanes.find((found) => py >= found.top && py < found.top + found.rows * ROW);
  if (!lane) return null;
  const row = Math.floor((py - lane.top) / ROW);
  return lane.placed.findLast(({ span, row: own }) => own === row && span.start - slack <= time && (span.end ?? now) + slack >= time) ?? null;
}
