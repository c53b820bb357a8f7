/** Who we are to the server: nobody (sign in), a viewer (reads), or an editor (may also annotate). */
import { ApiError, get, send } from './api';

interface SessionAnswer {
  role: 'viewer' | 'editor';
  version: string;
  home: string;
  panels_error: { message: string; fix: string } | null;
}

class Session {
  state = $state<'asking' | 'out' | 'in' | 'unreachable'>('asking');
  role = $state<'viewer' | 'editor'>('viewer');
  version = $state('');
  home = $state('');
  password = $state(false);

  get canWrite(): boolean {
    return this.role === 'editor';
  }

  async ask(): Promise<void> {
    try {
      const said = await get<SessionAnswer>('/api/v1/session');
      Object.assign(this, { role: said.role, version: said.version, home: said.home, state: 'in' });
    } catch (error) {
      this.state = error instanceof ApiError && error.status === 0 ? 'unreachable' : 'out';
    }
  }

  async signIn(password: string): Promise<void> {
    await send('POST', 'session', { password });
    await this.ask();
  }

  signedOut(): void {
    this.state = 'out';
  }
}

export const session = new Session();
