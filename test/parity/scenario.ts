/** Defines the format of the recorded exchanges: one scenario per line of `exchanges/<area>.jsonl`. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

export interface Scenario {
  readonly area: string;
  readonly name: string;
  /** Whether it must not run in parallel with others. */
  readonly serial?: boolean;
  /** What the scenario needs: `ca` is the key of the CA that signs client certificates. */
  readonly needs?: string;
  /** Whether the scenario gets a namespace of its own. It does by default. */
  readonly namespace?: boolean;
  readonly namespaceLabels?: Readonly<Record<string, string>>;
  readonly webhooks?: Readonly<Record<string, readonly WebhookRule[]>>;
  readonly steps: readonly Step[];
  readonly cleanup?: readonly Step[];
}

/**
 * The caller: the administrator if it is absent, `anonymous`, a token, a certificate, or a user that the administrator
 * impersonates.
 */
export type Caller =
  | 'admin'
  | 'anonymous'
  | { readonly token: string }
  | { readonly cert: string; readonly key: string }
  | { readonly issue: IssueRequest }
  | {
      readonly user: string;
      readonly groups?: readonly string[];
      readonly uid?: string;
      readonly extra?: Readonly<Record<string, string | readonly string[]>>;
    };

export interface IssueRequest {
  readonly cn?: string;
  readonly o?: readonly string[];
  readonly usage?: string;
  readonly days?: number;
  readonly unknownCA?: boolean;
}

export interface Step {
  readonly method?: string;
  readonly path?: string;
  readonly headers?: Readonly<Record<string, string | readonly string[]>>;
  /** Text is sent unchanged, and everything else as JSON. */
  readonly body?: unknown;
  /** Values of the response that later steps use. */
  readonly save?: Readonly<Record<string, string>>;
  readonly as?: Caller;
  /** Pointers into the response that are not compared. `*` is one segment. */
  readonly ignore?: readonly string[];
  /** The parts of the body that are compared; all of it if absent. */
  readonly keep?: readonly string[];
  /** Lists whose order is not defined. */
  readonly sort?: readonly string[];
  readonly retry?: { readonly until: string; readonly seconds: number };
  /** The delay before the step in milliseconds. */
  readonly wait?: number;
  readonly decode?: { readonly x509?: string; readonly jwt?: string };
  /** The name of a webhook whose received requests are compared. */
  readonly calls?: string;
  /** Clears the requests that the webhooks have received. */
  readonly forget?: boolean;
  readonly want?: Outcome;
}

export interface Outcome {
  readonly status: number;
  readonly headers: Readonly<Record<string, unknown>>;
  readonly body: unknown;
  readonly decoded?: unknown;
}

/** The first rule whose values match the review determines the response. */
export interface WebhookRule {
  readonly when?: Readonly<Record<string, string>>;
  readonly answer: WebhookAnswer;
}

export interface WebhookAnswer {
  /** The whole body, instead of a review around `response`. */
  readonly raw?: unknown;
  readonly status?: unknown;
  readonly contentType?: string;
  readonly delay?: number;
  readonly patch?: unknown;
  readonly patchType?: string;
  readonly [member: string]: unknown;
}

const EXCHANGES = join(import.meta.dirname, 'exchanges');

/** Returns the names of all areas, sorted. */
export function areas(): string[] {
  return readdirSync(EXCHANGES)
    .filter((name) => name.endsWith('.jsonl'))
    .map((name) => name.slice(0, -'.jsonl'.length))
    .sort();
}

/** Returns the scenarios of an area in the order of its file. */
export function scenariosOf(area: string): Scenario[] {
  return readFileSync(join(EXCHANGES, `${area}.jsonl`), 'utf8')
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => ({ area, ...(JSON.parse(line) as Omit<Scenario, 'area'>) }));
}
