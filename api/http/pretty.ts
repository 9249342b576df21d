/**
 * Decides which JSON responses are indented, by the rules of Kubernetes' servers. Their indented JSON does not end in a
 * newline.
 */
import { stringifyJson } from '../codec/json.ts';

/** What a request says about the form of its response. */
export interface PrettyRequest {
  /** The first value of the query parameter `pretty`. */
  readonly pretty: string | null;
  readonly userAgent: string;
}

const TRUE: ReadonlySet<string> = new Set(['1', 't', 'T', 'TRUE', 'true', 'True']);
const HUMAN_CLIENTS = ['curl', 'Wget', 'Mozilla/5.0'];

/** Whether to indent the response: the query requests it, or the client is a browser or a command-line tool. */
export function wantsPretty({ pretty, userAgent }: PrettyRequest): boolean {
  if (pretty !== null && pretty !== '') return TRUE.has(pretty);
  return HUMAN_CLIENTS.some((client) => userAgent.startsWith(client));
}

/** Encodes a response. */
export const responseJson = (value: unknown, { pretty }: { readonly pretty: boolean }): string =>
  pretty ? stringifyJson(value, 2) : `${stringifyJson(value)}\n`;
