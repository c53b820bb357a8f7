/** Where we are: every view's state is in the URL, so that any view can be shared. */

export type Query = Record<string, string>;

export const route = $state({ path: location.pathname, query: read() });

function read(): Query {
  return Object.fromEntries(new URLSearchParams(location.search));
}

function sync(): void {
  route.path = location.pathname;
  route.query = read();
}

addEventListener('popstate', sync);

/** A link; empty values are left out of it. */
export function href(path: string, query: Record<string, string | number | null | undefined> = {}): string {
  const kept = Object.entries(query).filter(([, value]) => value !== '' && value != null);
  const search = new URLSearchParams(kept.map(([key, value]) => [key, String(value)])).toString();
  return search ? `${path}?${search}` : path;
}

export function go(url: string, replace = false): void {
  if (url === location.pathname + location.search) return;
  history[replace ? 'replaceState' : 'pushState'](null, '', url);
  sync();
  if (!replace) scrollTo(0, 0);
}

/** Change parts of this view's state; null or '' removes one. */
export function change(patch: Record<string, string | number | null>, replace = true): void {
  const url = href(route.path, { ...route.query, ...patch });
  if (url === location.pathname + location.search) return;
  history[replace ? 'replaceState' : 'pushState'](null, '', url);
  sync();
}

/** Follow plain clicks on links of ours without loading the page anew. */
export function follow(event: MouseEvent): void {
  if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
  const link = (event.target as Element | null)?.closest?.('a');
  if (!link || link.target || link.hasAttribute('download')) return;
  if (link.origin !== location.origin || link.pathname.startsWith('/api/')) return;
  event.preventDefault();
  go(link.pathname + link.search);
}

export const runPath = (run: string, page: string): string => `/runs/${encodeURIComponent(run)}/${page}`;
