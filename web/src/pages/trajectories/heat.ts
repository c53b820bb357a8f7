/** Columns of a token as colours: one hue where more is more, two where the sign matters. */
import { real, type Num, type Trajectory } from '../../state/types';

export const SAMPLED = 1;
export const PROMPT = 2;
export const TOOL = 4;
export const STOP = 8;
export const FORCED = 16;

export interface Column {
  key: string;
  label: string;
  explained: string;
  signed: boolean;
  values: (number | null)[];
  /** What full colour stands for. */
  most: number;
}

const KNOWN: Record<string, [string, string, boolean]> = {
  logprobs: ['surprise', '−log-probability when it was sampled: dark is improbable', false],
  entropy: ['entropy', 'entropy of the distribution it was drawn from, in nats', false],
  advantage: ['advantage', 'what the loss pushed it by: up or down', true],
  mismatch: ['mismatch', 'trainer minus sampler log-probability: should be 0', true],
  trainer_logprobs: ['trainer surprise', '−log-probability by the trainer', false],
};

export function columnsOf(trajectory: Trajectory): Column[] {
  const sampled = trajectory.flags.map((flag) => (flag & SAMPLED) !== 0);
  const found: Column[] = [column('logprobs', trajectory.logprobs, sampled)];
  for (const [name, values] of Object.entries(trajectory.columns)) found.push(column(name, values, sampled));
  const order = ['logprobs', 'entropy', 'advantage', 'mismatch'];
  const rank = (key: string): number => (order.includes(key) ? order.indexOf(key) : order.length);
  return found.sort((a, b) => rank(a.key) - rank(b.key));
}

function column(key: string, raw: Num[], sampled: boolean[]): Column {
  const [label, explained, signed] = KNOWN[key] ?? [key, key, raw.some((value) => (real(value) ?? 0) < 0)];
  const flip = key === 'logprobs' || key === 'trainer_logprobs' ? -1 : 1;
  const values = raw.map((value, index) => {
    const found = real(value);
    return found === null || !Number.isFinite(found) || !sampled[index] ? null : found * flip;
  });
  const sizes = values.filter((value): value is number => value !== null).map(Math.abs).sort((a, b) => a - b);
  return { key, label, explained, signed, values, most: sizes[Math.floor(sizes.length * 0.98)] || 1 };
}

/** Class and strength (0 to 1) of a value. */
export function shade(column: Column, index: number): { tone: 'up' | 'down' | 'one' | ''; strength: number } {
  const value = column.values[index];
  if (value === null || value === undefined) return { tone: '', strength: 0 };
  const strength = Math.min(1, Math.abs(value) / column.most);
  return { tone: column.signed ? (value >= 0 ? 'up' : 'down') : 'one', strength };
}
