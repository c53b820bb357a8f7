/** Lines that say the same but for numbers, one after another, become one with a count. */
import type { LogLine } from '../../state/types';

export interface Shown { item: LogLine; times: number }

const shape = (item: LogLine): string => `${item.source}\n${item.level}\n${item.text.slice(0, 300).replace(/[\d.]+/g, '#')}`;

export function collapse(lines: readonly LogLine[]): Shown[] {
  const found: Shown[] = [];
  let last = '';
  for (const item of lines) {
    const own = shape(item);
    const open = found.at(-1);
    if (open && own === last) {
      open.item = item;
      open.times += 1;
    } else found.push({ item, times: 1 });
    last = own;
  }
  return found;
}
