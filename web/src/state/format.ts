/** Numbers, spans and times for people. Data from a run is only ever shown as text. */

export function number(value: number | null | undefined, digits = 3): string {
  if (value === null || value === undefined) return '–';
  if (!Number.isFinite(value)) return Number.isNaN(value) ? 'NaN' : value > 0 ? '∞' : '−∞';
  if (value === 0) return '0';
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e5) return String(value).replace('-', '−');
  if (size >= 1e5 || size < 1e-3) {
    if (size >= 1e5 && size < 1e15) return compact(value);
    return String(Number(value.toPrecision(digits))).replace(/-/g, '−').replace('e+', 'e');
  }
  return String(Number(value.toPrecision(digits))).replace('-', '−');
}

function compact(value: number): string {
  const size = Math.abs(value);
  for (const [limit, unit] of [[1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'k']] as const) {
    if (size >= limit) return `${Number((value / limit).toPrecision(3))} ${unit}`.replace('-', '−');
  }
  return String(value);
}

/** Bytes in the unit in which they are a number of one to three digits. */
export function bytes(size: number): string {
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  const place = Math.min(units.length - 1, size < 1000 ? 0 : Math.floor(Math.log10(size) / 3));
  return `${Number((size / 1000 ** place).toPrecision(3))} ${units[place]}`;
}

export const percent = (share: number | null | undefined, digits = 0): string =>
  share === null || share === undefined ? '–' : `${(share * 100).toFixed(digits)} %`;

export function span(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return '–';
  if (seconds === 0) return '0';
  if (seconds < 0.001) return `${(seconds * 1e6).toFixed(0)} µs`;
  if (seconds < 1) return `${(seconds * 1000).toFixed(seconds < 0.01 ? 1 : 0)} ms`;
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60) % 60} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

const STAMP = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'short' });
const CLOCK = new Intl.DateTimeFormat(undefined, {
  hour: '2-digit', minute: '2-digit', second: '2-digit', hour12: false,
});

export const moment = (time: number | null | undefined): string =>
  time ? STAMP.format(time * 1000) : '–';
export const clock = (time: number | null | undefined): string =>
  time ? CLOCK.format(time * 1000) : '–';

export function ago(time: number | null | undefined, now: number): string {
  if (!time) return '–';
  const seconds = Math.max(0, now - time);
  return seconds < 5 ? 'now' : `${span(seconds < 60 ? Math.round(seconds) : seconds).split(' ').slice(0, 2).join(' ')} ago`;
}

export const count = (amount: number, one: string, many = `${one}s`): string =>
  `${amount.toLocaleString('en')} ${amount === 1 ? one : many}`;

const CONTROL =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufffe\uffff]/g;

/** Text with every character that hides itself or turns the line around written out. */
export const visible = (text: string): string =>
  text.replace(CONTROL, (char) => {
    const code = char.charCodeAt(0);
    return code < 0x100 ? `\\x${code.toString(16).padStart(2, '0')}` : `\\u${code.toString(16).padStart(4, '0')}`;
  });

/** The same on one line, cut to `width` characters. */
export function line(text: string, width = 200): string {
  const flat = visible(text.slice(0, width * 4)).replace(/\s+/g, ' ').trim();
  return flat.length <= width ? flat : `${flat.slice(0, width - 1)}…`;
}
