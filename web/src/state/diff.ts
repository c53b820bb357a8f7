/** Which words two texts share: longest common subsequence over words, for texts of a screen or two. */
export interface Piece { text: string; same: boolean }

const MOST_WORDS = 1200;

export function wordsDiffering(text: string, other: string): Piece[] {
  const mine = (text.match(/\S+\s*|^\s+/g) ?? []).slice(0, MOST_WORDS);
  const theirs = (other.match(/\S+\s*|^\s+/g) ?? []).slice(0, MOST_WORDS);
  const [rows, columns] = [mine.length, theirs.length];
  const table = new Uint16Array((rows + 1) * (columns + 1));
  for (let i = rows - 1; i >= 0; i--) {
    for (let j = columns - 1; j >= 0; j--) {
      const at = i * (columns + 1) + j;
      table[at] = mine[i] === theirs[j] ? (table[at + columns + 2] ?? 0) + 1 : Math.max(table[at + columns + 1] ?? 0, table[at + 1] ?? 0);
    }
  }
  const found: Piece[] = [];
  const put = (word: string, same: boolean): void => {
    const last = found.at(-1);
    if (last?.same === same) last.text += word;
    else found.push({ text: word, same });
  };
  let j = 0;
  for (let i = 0; i < rows; i++) {
    while (j < columns && mine[i] !== theirs[j] && (table[i * (columns + 1) + j + 1] ?? 0) >= (table[(i + 1) * (columns + 1) + j] ?? 0) && (table[i * (columns + 1) + j] ?? 0) > (table[(i + 1) * (columns + 1) + j] ?? 0)) j++;
    if (j < columns && mine[i] === theirs[j]) {
      put(mine[i] as string, true);
      j++;
    } else put(mine[i] as string, false);
  }
  return found;
}
