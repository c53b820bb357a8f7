/** The server's answers: `training_gym.records.index` and `.health` as JSON. */

export type Level = 'healthy' | 'too_early' | 'degraded' | 'critical';
export type Status = 'queued' | 'running' | 'completed' | 'stopped' | 'failed' | 'lost';
export type Outcome = 'finished' | 'truncated' | 'model_failed' | 'infrastructure_failed';
/** JSON has no NaN and infinities: they come as text. */
export type Num = number | 'NaN' | 'Infinity' | '-Infinity' | null;
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

export const real = (value: Num | undefined): number | null =>
  value === null || value === undefined ? null : Number(value);

export interface Figure {
  name: string; mean: number; low: number; high: number; count: number; step: number;
}
export interface Note { id: string; time: number; by: string; text: string }
export interface RunRow {
  run_id: string; path: string; name: string | null; model: string; tags: string[]; status: Status;
  problem: string; level: Level; verdict: string; phase: string; created_at: number; updated_at: number;
  heartbeat_at: number | null; heartbeat_age_s: number | null; attempt: number; step: number;
  num_steps: number | null; reward: Num; reward_name: string; sparkline: Num[];
  evaluation: Figure | null; accelerator_busy: number | null; cost: number | null; wall_s: number;
  num_notes: number; version: string; indexed: boolean;
}
export interface RunPage { runs: RunRow[]; total: number; tags: string[]; pending: number }
export interface AttemptRow {
  attempt: number; started_at: number | null; ended_at: number | null; exit_code: number | null;
  reason: string; resumed_from: number | null;
}
export interface CheckpointRow {
  step: number; batch: number | null; kind: string; created_at: number; path: string;
  size_bytes: number; sha256: string;
}
export interface Overview {
  row: RunRow; manifest: { [key: string]: Json }; plan: { [key: string]: Json } | null;
  environment: { [key: string]: Json } | null; result: { [key: string]: Json } | null;
  attempts: AttemptRow[]; checkpoints: CheckpointRow[]; notes: Note[]; metrics: string[];
  counts: Record<string, number>; dropped: Record<string, number>; damaged: number; hidden: number;
  parents: string[];
  charts: ChartSpec[];
}
export interface ChartSpec {
  key: string; title: string; kind: 'line' | 'stack'; unit: string; metrics: string[]; why: string;
}
export interface Panels { panels: ChartSpec[]; path: string; problem: { message: string; fix: string } | null }
export interface MetricName { name: string; count: number; last: Num; last_batch: number | null }
export interface Curve {
  run_id: string; name: string; axis: Axis; x: number[]; mean: Num[]; low: Num[] | null;
  high: Num[] | null; batch: number[]; count: number;
}
export type Axis = 'step' | 'batch' | 'tokens' | 'time' | 'cost';

export interface EpisodeRow {
  id: string; stream: string; group: string; member: number; task: string; environment: string;
  step: number | null; optimizer_step: number | null; policy_version: number | null; attempt: number;
  time: number; status: Outcome; reason: string; reward: Num; components: Record<string, Num>;
  advantage: Num; tokens: number; prompt_tokens: number; turns: number; staleness: number | null;
  mean_logprob: Num; duration_s: number; retries: number; discarded: string; hidden: boolean;
  preview: string;
}
export interface EpisodePage { episodes: EpisodeRow[]; cursor: string; complete: boolean; total: number | null }
export interface ToolCall { id: string; name: string; arguments: string }
export interface Message {
  role: 'system' | 'user' | 'assistant' | 'tool'; content: string | { type: string; text?: string; sha256?: string }[];
  reasoning: string | null; tool_calls: ToolCall[]; tool_call_id: string | null; name: string | null;
}
export interface Trajectory {
  agent: string; prompt_length: number; ids: number[]; text: string[] | null; flags: number[];
  trained: boolean[]; versions: number[]; logprobs: Num[]; columns: Record<string, Num[]>;
}
export interface EpisodeDetail {
  row: EpisodeRow;
  episode: {
    task: { id: string; answer: Json; metadata: { [key: string]: Json }; prompt: Json };
    messages: Message[];
    outcome: { status: Outcome; reason: string; artifacts: { [key: string]: Json } };
    score: { value: Num; components: Record<string, Num>; turns: Num[] | null; agents: Record<string, Num> | null } | null;
  };
  trajectories: Trajectory[]; problem: string; siblings: string[]; events: { [key: string]: Json }[];
}
export interface GroupRow {
  group: string; task: string; asked: string; environment: string; stream: string; step: number | null; size: number;
  judged: number; mean: Num; low: Num; high: Num; equal: boolean; rewards: Num[]; ids: string[];
}
export interface GroupView { row: GroupRow; episodes: EpisodeDetail[] }
export interface StepRow {
  step: number; episodes: number; groups: number; equal_groups: number; judged: number; failed: number;
  truncated: number; mean: Num; low: Num; high: Num; mean_tokens: number;
}
export interface Histogram { edges: number[]; counts: number[]; missing: number }

export interface SpanRow {
  id: number; lane: string; writer: string; name: string; start: number; end: number | null;
  step: number | null; attempt: number; fields: { [key: string]: Json };
}
export interface StepTime {
  step: number; start: number; end: number; seconds: Record<string, number>; idle_s: number;
  blame: Record<string, number>;
}
export interface Timeline {
  spans: SpanRow[]; omitted: number; lanes: string[]; steps: StepTime[]; start: number | null;
  stop: number | null; cost_per_hour: number | null; accelerators: number; currency: string;
}
export interface LogLine {
  id: number; time: number; writer: string; source: string; level: 'debug' | 'info' | 'warning' | 'error';
  batch: number | null; text: string; cut: number;
}
export interface LogPage {
  lines: LogLine[]; older: string; newer: string; complete: boolean; sources: string[];
}
export interface EvaluationRow {
  suite: string; phase: string; figure: Figure; optimizer_step: number | null; checkpoint: string;
  episodes: number; missing: number; components: Record<string, Num>; difference: Figure | null; time: number;
}
export interface FlippedTask {
  task: string; before: number; after: number; before_episodes: string[]; after_episodes: string[];
}
export interface Flipped {
  suite: string; before_step: number; after_step: number; threshold: number; gained: FlippedTask[];
  lost: FlippedTask[]; unchanged: number;
}
export type Severity = 'advice' | 'warning' | 'critical';
export interface Alert {
  id: string; rule: string; severity: Severity; state: 'open' | 'acknowledged' | 'resolved';
  environment: string; first_step: number | null; last_step: number | null; opened_at: number;
  updated_at: number; message: string; value: Num; threshold: Num; evidence: string[];
  explanations: string[]; next: string[]; source: string; acknowledged_by: string; note: string;
  details: { [key: string]: Json };
}
export interface Verdict { level: Level; sentence: string; since_step: number | null; rule: string }
export interface Assessment { run_id: string; verdict: Verdict; alerts: Alert[] }

export interface ConfigChange {
  path: string; before: Json; after: Json; before_origin: string; after_origin: string;
}
export interface SourceChange { path: string; state: 'added' | 'removed' | 'changed'; diff: string }
export interface ConfigDifference {
  before: string; after: string; changes: ConfigChange[]; sources: SourceChange[]; environment: ConfigChange[];
}
export interface ComparedRun {
  row: RunRow; values: Record<string, Num>; best: Record<string, Num>; evaluations: Figure[];
  settings: Record<string, Json>;
}
export interface Comparison { runs: ComparedRun[]; metrics: string[]; differing: string[] }
export interface SavedFilter { name: string; page: string; query: Record<string, string> }

export interface MetricRecord {
  batch: number | null; optimizer_step: number | null; time: number; tokens: number; values: Record<string, Num>;
}
export interface Delta {
  run: RunRow; reset: boolean; metrics: MetricRecord[]; episodes: EpisodeRow[]; spans: SpanRow[];
  events: unknown[]; alerts: unknown[]; evaluations: unknown[]; annotations: unknown[]; num_logs: number;
  cursor: string;
}
