/** Metrics as people look for them: what matters first, the rest by what stands before the slash. */
import type { MetricName } from '../../state/types';

export interface MetricGroup { title: string; names: string[] }

const FIRST = ['reward', 'eval', 'loss', 'entropy', 'kl', 'mismatch', 'response', 'length', 'grad', 'clip'];

export function grouped(metrics: MetricName[], search: string): MetricGroup[] {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  const groups = new Map<string, string[]>();
  for (const { name } of metrics) {
    if (!words.every((word) => name.toLowerCase().includes(word))) continue;
    const title = titleOf(name);
    groups.set(title, [...(groups.get(title) ?? []), name]);
  }
  return [...groups].map(([title, names]) => ({ title, names: names.sort() })).sort((a, b) => rank(a.title) - rank(b.title) || a.title.localeCompare(b.title));
}

function titleOf(name: string): string {
  const slash = name.indexOf('/');
  if (slash > 0) return name.slice(0, slash);
  return FIRST.find((word) => name.includes(word)) ?? 'other';
}

function rank(title: string): number {
  const place = FIRST.findIndex((word) => title.includes(word));
  return place < 0 ? FIRST.length : place;
}
