/** uPlot with our colours: one or more curves over one axis, bands for merged points, a shared cursor. */
import uPlot from 'uplot';
import { number, span } from '../state/format';
import { faded, theme } from '../state/theme.svelte';

export interface Line {
  label: string;
  /** A colour variable's name, such as `s0`. */
  color: string;
  x: number[];
  y: (number | null)[];
  low?: (number | null)[] | null;
  high?: (number | null)[] | null;
  batch?: number[];
  run?: string;
  dashed?: boolean;
  ghost?: boolean;
}

export interface PlotOptions {
  lines: Line[];
  stacked: boolean;
  width: number;
  height: number;
  sync?: string;
  log: boolean;
  unit: string;
  xUnit: string;
  points: boolean;
  onpick?: (line: Line, index: number) => void;
  onzoom?: (range: { min: number; max: number } | null) => void;
  onhover?: (x: number | null, values: (number | null)[]) => void;
}

/** Steps and tokens are counted: no tick lies between two of them. */
const WHOLE = Array.from({ length: 13 }, (_, power) => [1, 2, 5].map((digit) => digit * 10 ** power)).flat();

export function draw(target: HTMLElement, options: PlotOptions): uPlot {
  const { lines } = options;
  const ink = theme.color('faint');
  const grid = { stroke: theme.color('grid'), width: 1 };
  const { data, series, bands } = columns(options);
  const font = '11px Inter, system-ui, sans-serif';
  const plot = new uPlot(
    {
      width: options.width,
      height: options.height,
      padding: [8, 10, 0, 0],
      legend: { show: false },
      scales: {
        x: { time: false },
        y: options.log ? { distr: 3 } : { range: (_u, low, high) => padded(low, high, options.stacked) },
      },
      axes: [
        { stroke: ink, font, grid: { show: false }, ticks: { show: false }, size: 26, gap: 4, incrs: options.xUnit === 's' ? undefined : WHOLE, values: (_u, ticks) => ticks.map((tick) => (options.xUnit === 's' ? span(tick) : number(tick))) },
        { stroke: ink, font, grid, ticks: { show: false }, size: 50, gap: 6, space: 34, values: (_u, ticks) => ticks.map((tick) => (tick === null ? '' : axisText(tick, options.unit))) },
      ],
      cursor: {
        points: { size: 6 },
        drag: { x: true, y: false },
        sync: options.sync ? { key: options.sync, setSeries: false } : undefined,
      },
      series: [{}, ...series],
      bands,
      hooks: {
        setCursor: [
          (u) => {
            const at = u.cursor.idx;
            const known = at !== null && at !== undefined && (u.cursor.left ?? -1) >= 0;
            options.onhover?.(
              known ? (u.data[0][at] as number) : null,
              lines.map((_line, index) => (known ? near(u.data[index + 1] as (number | null)[], at) : null)),
            );
          },
        ],
        setSelect: [(u) => u.select.width > 2 && options.onzoom?.({ min: u.posToVal(u.select.left, 'x'), max: u.posToVal(u.select.left + u.select.width, 'x') })],
        ready: [
          (u) => {
            u.over.addEventListener('dblclick', () => options.onzoom?.(null));
            pickable(u, options);
          },
        ],
      },
    },
    data,
    target,
  );
  return plot;
}

function padded(low: number | null, high: number | null, fromZero: boolean): [number, number] {
  if (low === null || high === null) return [0, 1];
  const from = fromZero ? Math.min(0, low) : low;
  const room = (high - from || Math.abs(high) || 1) * 0.06;
  return [fromZero ? from : from - room, high + room];
}

function axisText(tick: number, unit: string): string {
  if (unit === 'share') return `${Number((tick * 100).toPrecision(4))} %`;
  if (unit === 's') return span(tick);
  return number(tick, 3);
}

function near(values: (number | null)[], at: number): number | null {
  for (let away = 0; away < 3; away++) {
    const found = values[at - away] ?? values[at + away];
    if (found !== null && found !== undefined) return found;
  }
  return null;
}

/** Curves on one common x; bands hold the extremes of merged points. */
function columns(options: PlotOptions): { data: uPlot.AlignedData; series: uPlot.Series[]; bands: uPlot.Band[] } {
  const { lines, stacked } = options;
  const tables = lines.map((line): uPlot.AlignedData => {
    const rest = line.low && line.high && !stacked ? [line.low, line.high] : [];
    return [line.x, line.y, ...rest] as uPlot.AlignedData;
  });
  const joined = (lines.length ? uPlot.join(tables) : [[]]) as (number | null)[][];
  const main: (number | null)[][] = [];
  const extra: (number | null)[][] = [];
  const series: uPlot.Series[] = [];
  const bandSeries: uPlot.Series[] = [];
  const bands: uPlot.Band[] = [];
  let at = 1;
  for (const [index, line] of lines.entries()) {
    const color = theme.color(line.color);
    main.push([...(joined[at++] ?? [])]);
    series.push({
      label: line.label,
      stroke: line.ghost ? faded(color, 0.28) : color,
      width: line.ghost ? 1 : 1.6,
      dash: line.dashed ? [5, 4] : undefined,
      fill: stacked ? faded(color, 0.55) : undefined,
      spanGaps: true,
      points: { show: options.points || line.x.length < 3, size: 5 },
    });
    if (line.low && line.high && !stacked) {
      extra.push(joined[at++] ?? [], joined[at++] ?? []);
      const place = lines.length + 1 + bandSeries.length;
      const edge = { stroke: 'transparent', width: 0, spanGaps: true, points: { show: false } };
      bandSeries.push(edge, edge);
      bands.push({ series: [place + 1, place], fill: faded(theme.color(lines[index]?.color ?? 's0'), 0.16) });
    }
  }
  if (stacked) accumulate(main, series.length, bands, lines);
  return { data: [joined[0] ?? [], ...main, ...extra] as uPlot.AlignedData, series: [...series, ...bandSeries], bands };
}

/** Turn columns into running sums, filled down to the one below. */
function accumulate(main: (number | null)[][], count: number, bands: uPlot.Band[], lines: Line[]): void {
  const length = main[0]?.length ?? 0;
  for (let row = 0; row < length; row++) {
    let sum = 0;
    for (const column of main) column[row] = sum += column[row] ?? 0;
  }
  for (let index = count - 1; index > 0; index--) {
    bands.push({ series: [index + 1, index], fill: faded(theme.color(lines[index]?.color ?? 's0'), 0.55) });
  }
}

/** A click (not a drag) picks the nearest curve at that point. */
function pickable(u: uPlot, options: PlotOptions): void {
  if (!options.onpick) return;
  u.over.classList.add('pickable');
  u.over.addEventListener('click', () => {
    const at = u.cursor.idx;
    if (at === null || at === undefined || u.select.width > 2) return;
    const x = u.data[0][at] as number;
    const top = u.cursor.top ?? 0;
    let best: { line: Line; index: number; far: number } | null = null;
    for (const [place, line] of options.lines.entries()) {
      const index = nearest(line.x, x);
      const value = (u.data[place + 1] as (number | null)[])[at] ?? line.y[index];
      if (value === null || value === undefined) continue;
      const far = Math.abs(u.valToPos(value, 'y') - top);
      if (!best || far < best.far) best = { line, index, far };
    }
    if (best) options.onpick?.(best.line, best.index);
  });
}

export function nearest(xs: number[], x: number): number {
  let low = 0;
  let high = xs.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if ((xs[middle] as number) < x) low = middle;
    else high = middle;
  }
  return Math.abs((xs[low] ?? 0) - x) <= Math.abs((xs[high] ?? 0) - x) ? low : high;
}
