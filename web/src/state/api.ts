/** The server's JSON; a failure is an `ApiError` with the server's two lines. */

export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly fix = '',
  ) {
    super(message);
  }
}

type Params = Record<string, string | number | boolean | null | undefined | readonly string[]>;

export function address(path: string, params: Params = {}): string {
  const search = new URLSearchParams();
  for (const [key, value] of Object.entries(params)) {
    if (Array.isArray(value)) for (const item of value) search.append(key, item);
    else if (value != null && value !== '') search.set(key, String(value));
  }
  const text = search.toString();
  return `/api/v1/${path}${text ? `?${text}` : ''}`;
}

export async function get<T>(url: string, signal?: AbortSignal): Promise<T> {
  return answer<T>(await reach(url, { signal }));
}

export async function send<T>(method: 'POST' | 'PUT' | 'DELETE', path: string, body: unknown): Promise<T> {
  const headers = { 'content-type': 'application/json' };
  return answer<T>(await reach(`/api/v1/${path}`, { method, headers, body: JSON.stringify(body) }));
}

async function reach(url: string, init: RequestInit): Promise<Response> {
  try {
    return await fetch(url, init);
  } catch (error) {
    if (error instanceof DOMException && error.name === 'AbortError') throw error;
    throw new ApiError(0, 'the dashboard does not answer', 'is training-gym dashboard still running?');
  }
}

async function answer<T>(response: Response): Promise<T> {
  const body = await response.json().catch(() => ({}));
  if (response.ok) return body as T;
  const said = body?.error ?? {};
  throw new ApiError(response.status, said.message ?? `the server answered ${response.status}`, said.fix);
}
