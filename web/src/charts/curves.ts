/** Curves as they grow: fetched once, then appended to; never fetched again for what is new. */
import { real, type Axis, type Curve, type MetricRecord } from '../state/types';
import type { Line } from './plot';

export interface Points {
  run: string;
  name: string;
  x: number[];
  y: (number | null)[];
  low: (number | null)[] | null;
  high: (number | null)[] | null;
  batch: number[];
}

export const keyOf = (run: string, name: string): string => `${run}\n${name}`;

export function collect(curves: Curve[]): Map<string, Points> {
  return new Map(
    curves.map((curve) => [
      keyOf(curve.run_id, curve.name),
      {
        run: curve.run_id,
        name: curve.name,
        x: curve.x,
        y: curve.mean.map(finite),
        low: curve.low?.map(finite) ?? null,
        high: curve.high?.map(finite) ?? null,
        batch: curve.batch,
      },
    ]),
  );
}

function finite(value: number | string | null): number | null {
  const found = value === null ? null : Number(value);
  return found !== null && Number.isFinite(found) ? found : null;
}

/** The curves with what a delta brought; false: nothing of it is shown. */
export function append(known: Map<string, Points>, run: string, records: MetricRecord[], axis: Axis): boolean {
  let changed = false;
  for (const record of records) {
    const x = position(record, axis);
    if (x === null) continue;
    for (const [name, value] of Object.entries(record.values)) {
      const points = known.get(keyOf(run, name));
      const last = points?.x.at(-1) ?? -Infinity;
      if (!points || x <= last) continue;
      const y = finite(real(value));
      points.x.push(x);
      points.y.push(y);
      points.low?.push(y);
      points.high?.push(y);
      points.batch.push(record.batch ?? -1);
      changed = true;
    }
  }
  return changed;
}

/** Where a live record lies on an axis; null: only the server can tell. */
function position(record: MetricRecord, axis: Axis): number | null {
  if (axis === 'batch') return record.batch;
  if (axis === 'step') return record.optimizer_step;
  if (axis === 'tokens') return record.tokens;
  return null;
}

/** Exponential moving average, corrected for its start (Kingma & Ba 2015, section 3). */
export function smooth(values: (number | null)[], weight: number): (number | null)[] {
  let mean = 0;
  let seen = 0;
  return values.map((value) => {
    if (value === null) return null;
    mean = weight * mean + (1 - weight) * value;
    seen += 1;
    return mean / (1 - weight ** seen);
  });
}

/** A curve as lines to draw: itself, or its average over a pale copy of itself. */
export function linesOf(points: Points, label: string, color: string, weight: number): Line[] {
  const own = { label, color, x: points.x, run: points.run, batch: points.batch };
  if (weight <= 0) return [{ ...own, y: points.y, low: points.low, high: points.high }];
  return [
    { ...own, y: smooth(points.y, weight) },
    { ...own, label: `${label}, as measured`, y: points.y, ghost: true },
  ];
}

/** Mean and extremes of several curves of one thing, such as the seeds of one configuration. */
export function seedBand(members: Points[], label: string, color: string): Line {
  const xs = [...new Set(members.flatMap((member) => member.x))].sort((a, b) => a - b);
  const at = members.map(() => 0);
  const y: (number | null)[] = [];
  const low: (number | null)[] = [];
  const high: (number | null)[] = [];
  for (const x of xs) {
    const values: number[] = [];
    for (const [index, member] of members.entries()) {
      while ((member.x[at[index] ?? 0] ?? Infinity) < x) at[index] = (at[index] ?? 0) + 1;
      const value = member.x[at[index] ?? 0] === x ? member.y[at[index] ?? 0] : null;
      if (value !== null && value !== undefined) values.push(value);
    }
    y.push(values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null);
    low.push(values.length ? Math.min(...values) : null);
    high.push(values.length ? Math.max(...values) : null);
  }
  return { label, color, x: xs, y, low, high, run: members[0]?.run, batch: members[0]?.batch };
}
