/** Filters of episodes as they stand in the URL, and as the server takes them. */
import type { Query } from '../../state/router.svelte';

export const FILTERS = ['stream', 'step', 'status', 'env', 'reward', 'component', 'value', 'length', 'staleness', 'error', 'q', 'judged'] as const;

export type Params = Record<string, string | string[]>;

/** `low..high` as two numbers; either may be missing. */
export function range(text: string | undefined): [number | null, number | null] {
  const [low = '', high = ''] = (text ?? '').split('..');
  const value = (part: string): number | null => (part.trim() === '' || Number.isNaN(Number(part)) ? null : Number(part));
  return text && !text.includes('..') ? [value(low), value(low)] : [value(low), value(high)];
}

export const rangeText = (low: number | null, high: number | null): string =>
  low === null && high === null ? '' : `${low ?? ''}..${high ?? ''}`;

export function episodeParams(query: Query): Params {
  const found: Params = {};
  const put = (name: string, value: string | undefined): void => {
    if (value) found[name] = value;
  };
  put('stream', query.stream ?? 'train');
  if (query.step) put('step', query.step.includes('..') ? query.step : `${query.step}..${query.step}`);
  put('environment', query.env);
  put('reward', query.reward);
  put('component', query.component);
  put('component_value', query.component ? query.value : undefined);
  put('length', query.length);
  put('staleness', query.staleness);
  put('error', query.error);
  put('text', query.q);
  put('judged', query.judged);
  if (query.status) found.status = query.status.split(',');
  if (found.stream === 'all') delete found.stream;
  return found;
}
