import { append, collect, keyOf, linesOf, seedBand, type Points } from '../../charts/curves';
import type { Line } from '../../charts/plot';
import { ApiError, address, get } from '../../state/api';
import { seriesColor } from '../../state/theme.svelte';
import type { Axis, Curve, Delta } from '../../state/types';

/** The curves a page shows: asked for once, then grown by deltas. */
export class CurveSet {
  version = $state(0);
  loading = $state(true);
  error = $state.raw<ApiError | null>(null);
  #known = new Map<string, Points>();
  #axis: Axis = 'batch';
  #ask: () => Promise<void> = async () => {};
  #timer = 0;

  /** Call while a component is set up. */
  constructor(runs: () => string[], names: () => string[], axis: () => Axis) {
    let shown = '';
    $effect(() => {
      const [ids, wanted, along] = [runs(), [...new Set(names())].sort(), axis()];
      const now = JSON.stringify([ids, wanted, along]);
      if (now === shown) return;
      shown = now;
      if (!ids.length || !wanted.length) {
        this.#known = new Map();
        this.loading = false;
        this.version++;
        return;
      }
      this.#axis = along;
      this.#ask = async () => {
        const curves = await get<{ series: Curve[] }>(address('series', { run: ids, name: wanted, x: along }));
        if (now !== shown) return;
        this.#known = collect(curves.series);
        this.loading = false;
        this.error = null;
        this.version++;
      };
      void this.refresh();
    });
  }

  async refresh(): Promise<void> {
    try {
      await this.#ask();
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      this.error = error;
      this.loading = false;
    }
  }

  /** Take in what is new; along time and cost only the server knows where it lies. */
  take(run: string, delta: Delta): void {
    const known = delta.metrics.every((record) => Object.keys(record.values).every((name) => !this.#fits(name) || this.#known.has(keyOf(run, name))));
    if (delta.reset || (delta.metrics.length && (!known || this.#axis === 'time' || this.#axis === 'cost'))) {
      clearTimeout(this.#timer);
      this.#timer = setTimeout(() => void this.refresh(), 1000);
    } else if (append(this.#known, run, delta.metrics, this.#axis)) this.version++;
  }

  #names: string[] = [];
  #fits(name: string): boolean {
    return this.#names.some((pattern) => pattern === name || (pattern.includes('*') && name.startsWith(pattern.split('*')[0] ?? '')));
  }

  points(run: string, name: string): Points | undefined {
    void this.version;
    return this.#known.get(keyOf(run, name));
  }

  /** One line for each metric that the run has. */
  lines(run: string, names: string[], weight = 0): Line[] {
    for (const name of names) if (!this.#names.includes(name)) this.#names.push(name);
    const found = names.flatMap((pattern) => this.#matching(run, pattern));
    const short = labels(found.map((points) => points.name));
    return found.flatMap((points, index) => linesOf(points, short[index] ?? points.name, seriesColor(index), weight));
  }

  #matching(run: string, pattern: string): Points[] {
    void this.version;
    if (!pattern.includes('*')) {
      const points = this.#known.get(keyOf(run, pattern));
      return points ? [points] : [];
    }
    const [head = '', tail = ''] = pattern.split('*');
    return [...this.#known.values()].filter((points) => points.run === run && points.name.startsWith(head) && points.name.endsWith(tail));
  }

  /** One line for each run, or one with a band for each set of runs that belong together. */
  across(sets: { label: string; runs: string[]; color: string }[], name: string, weight: number): Line[] {
    return sets.flatMap((set) => {
      const members = set.runs.map((run) => this.points(run, name)).filter((points): points is Points => Boolean(points));
      if (!members.length) return [];
      if (members.length > 1) return [seedBand(members, `${set.label} (${members.length})`, set.color)];
      return linesOf(members[0] as Points, set.label, set.color, weight);
    });
  }
}

/** Names without what they have in common before the last slash. */
function labels(names: string[]): string[] {
  if (names.length < 2) return names;
  const heads = new Set(names.map((name) => name.slice(0, name.lastIndexOf('/') + 1)));
  const head = heads.size === 1 ? ([...heads][0] ?? '') : '';
  return names.map((name) => name.slice(head.length));
}
