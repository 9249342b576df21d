/** Replays one scenario with a server, and returns its normalized responses. */
import { Agent, request as httpsRequest, type RequestOptions } from 'node:https';
import type { IncomingHttpHeaders } from 'node:http';
import { randomBytes } from 'node:crypto';
import { errorMessage } from '../../api/meta/error-message.ts';
import {
  createAuthority,
  decode,
  issueCertificate,
  type KeyedCertificate,
  type SigningAuthority,
} from './certificates.ts';
import { fill, pick, type Variables } from './json-path.ts';
import { keepOnly, normalize, sortLists } from './normalize.ts';
import type { Caller, IssueRequest, Outcome, Scenario, Step } from './scenario.ts';
import { WebhookServer, type Webhooks } from './webhook-server.ts';

export interface Target {
  /** The URL of the server, such as `https://127.0.0.1:6443`. */
  readonly url: string;
  /** The credentials of the administrator. */
  readonly admin: KeyedCertificate | { readonly token: string };
  /** The maximum time that a step waits for its expected result. */
  readonly patienceSeconds: number;
  /** Signs client certificates. Without it, scenarios that need one are skipped. */
  readonly clientCa: SigningAuthority | undefined;
}

interface Response {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly bytes: Buffer;
}

const REQUEST_TIMEOUT_MS = 30_000;
const RETRY_MS = 200;
const COMPARED_HEADERS = ['content-type', 'warning', 'retry-after', 'location', 'allow'];
const JSON_HEADERS = { 'content-type': 'application/json', 'user-agent': 'replay/1' };

/** A server and the values that earlier responses of a scenario have set. */
export class Replayer {
  readonly #target: Target;
  readonly #agent = new Agent({ keepAlive: true, maxSockets: Infinity });
  readonly #issued = new Map<string, Promise<KeyedCertificate>>();
  #webhooks: Promise<WebhookServer> | undefined;
  #unknownCa: Promise<SigningAuthority> | undefined;

  constructor(target: Target) {
    this.#target = target;
  }

  async close(): Promise<void> {
    this.#agent.destroy();
    (await this.#webhooks)?.close();
  }

  /** Resolves to the outcome of each step that has one. */
  async run(scenario: Scenario): Promise<(Outcome | undefined)[]> {
    const variables: Variables = {
      ns: `r-${randomBytes(4).toString('hex')}`,
      id: randomBytes(4).toString('hex'),
      id6: randomBytes(3).toString('hex'),
      base: this.#target.url,
    };
    const own = scenario.namespace !== false;
    if (own) await this.#prepareNamespace(String(variables['ns']), scenario);
    let webhooks: Webhooks | undefined;
    if (scenario.webhooks !== undefined) {
      this.#webhooks ??= WebhookServer.start();
      webhooks = (await this.#webhooks).add(scenario.webhooks);
      variables['webhookUrl'] = webhooks.url;
      variables['webhookCA'] = webhooks.ca;
    }
    const outcomes: (Outcome | undefined)[] = [];
    try {
      for (const step of scenario.steps) outcomes.push(await this.#step(step, variables, webhooks));
    } finally {
      for (const raw of scenario.cleanup ?? []) {
        const step = fill(raw, variables);
        await this.#call(step.method ?? 'DELETE', step.path ?? '/', JSON_HEADERS, undefined, 'admin').catch(
          () => undefined,
        );
      }
      if (own) {
        const path = `/api/v1/namespaces/${String(variables['ns'])}`;
        await this.#call('DELETE', path, JSON_HEADERS, undefined, 'admin').catch(() => undefined);
      }
    }
    return outcomes;
  }

  async #prepareNamespace(name: string, scenario: Scenario): Promise<void> {
    const create = (path: string, object: object): Promise<Response> =>
      this.#call('POST', path, JSON_HEADERS, JSON.stringify(object), 'admin');
    await create('/api/v1/namespaces', {
      apiVersion: 'v1',
      kind: 'Namespace',
      metadata: { name, labels: scenario.namespaceLabels },
    });
    await create(`/api/v1/namespaces/${name}/serviceaccounts`, {
      apiVersion: 'v1',
      kind: 'ServiceAccount',
      metadata: { name: 'default' },
    });
  }

  async #step(raw: Step, variables: Variables, webhooks: Webhooks | undefined): Promise<Outcome | undefined> {
    const { as: rawCaller, ...rest } = raw;
    const step = fill(rest, variables);
    const caller = rawCaller === undefined ? 'admin' : fill(rawCaller, variables);
    if (step.forget === true) {
      if (webhooks !== undefined) webhooks.calls.length = 0;
      return undefined;
    }
    if (step.calls !== undefined) return callsOutcome(step, variables, webhooks);
    if (step.wait !== undefined) await pause(step.wait);
    if (step.path === undefined) return undefined;
    const { response, body } = await this.#retried(step, caller, webhooks);
    for (const [name, path] of Object.entries(step.save ?? {})) variables[name] = pick(body, path);
    const decoded = step.decode === undefined ? undefined : normalize(decode(step.decode, body), variables);
    const headers: Record<string, unknown> = {};
    for (const name of COMPARED_HEADERS) {
      const value = response.headers[name];
      if (value !== undefined) headers[name] = normalize(String(value), variables);
    }
    const kept = step.keep === undefined ? normalize(body, variables) : keepOnly(body, step.keep, variables);
    return {
      status: response.status,
      headers,
      body: sortLists(kept, step.sort ?? []),
      ...(decoded === undefined ? {} : { decoded }),
    };
  }

  async #retried(
    step: Step,
    caller: Caller,
    webhooks: Webhooks | undefined,
  ): Promise<{ response: Response; body: unknown }> {
    const text =
      typeof step.body === 'string' ? step.body : step.body === undefined ? undefined : JSON.stringify(step.body);
    const headers: Record<string, string | readonly string[]> = {
      'user-agent': 'replay/1',
      accept: 'application/json',
      ...(text === undefined ? {} : { 'content-type': 'application/json' }),
    };
    for (const [name, value] of Object.entries(step.headers ?? {})) headers[name.toLowerCase()] = value;
    const path = encodeURI(decodeURI(step.path ?? '/'));
    const deadline = Date.now() + Math.min(step.retry?.seconds ?? 0, this.#target.patienceSeconds) * 1000;
    for (;;) {
      let response: Response;
      let body: unknown;
      try {
        response = await this.#call(step.method ?? 'GET', path, headers, text, caller);
        body = parseBody(response);
      } catch (error) {
        response = { status: 0, headers: {}, bytes: Buffer.alloc(0) };
        body = { error: errorMessage(error) };
      }
      if (step.retry === undefined || Date.now() > deadline) return { response, body };
      if (isReached(step.retry.until, response, body, webhooks)) return { response, body };
      await pause(RETRY_MS);
    }
  }

  async #call(
    method: string,
    path: string,
    headers: Readonly<Record<string, string | readonly string[]>>,
    body: string | undefined,
    caller: Caller,
  ): Promise<Response> {
    const { url } = this.#target;
    const { hostname, port } = new URL(url);
    const tls = await this.#clientTls(caller);
    const sent: Record<string, string | string[]> = {};
    for (const [name, value] of Object.entries({ ...this.#credentials(caller), ...headers })) {
      sent[name] = typeof value === 'string' ? value : [...value];
    }
    if (body !== undefined) sent['content-length'] = String(Buffer.byteLength(body));
    const options: RequestOptions = {
      host: hostname,
      port,
      method,
      path,
      headers: sent,
      agent: this.#agent,
      timeout: REQUEST_TIMEOUT_MS,
      rejectUnauthorized: false,
      ...tls,
    };
    return new Promise((resolve, reject) => {
      const request = httpsRequest(options, (response) => {
        const chunks: Buffer[] = [];
        response.on('data', (chunk: Buffer) => chunks.push(chunk));
        response.on('error', reject);
        response.on('end', () =>
          resolve({ status: response.statusCode ?? 0, headers: response.headers, bytes: Buffer.concat(chunks) }),
        );
      });
      request.on('timeout', () => request.destroy(new Error('timed out')));
      request.on('error', reject);
      request.end(body);
    });
  }

  #credentials(caller: Caller): Record<string, string | string[]> {
    const { admin } = this.#target;
    const own: Record<string, string> = 'token' in admin ? { authorization: `Bearer ${admin.token}` } : {};
    if (caller === 'admin') return own;
    if (caller === 'anonymous' || 'cert' in caller || 'issue' in caller) return {};
    if ('token' in caller) return { authorization: `Bearer ${caller.token}` };
    const headers: Record<string, string | string[]> = { ...own, 'impersonate-user': caller.user };
    if (caller.groups !== undefined) headers['impersonate-group'] = [...caller.groups];
    if (caller.uid !== undefined) headers['impersonate-uid'] = caller.uid;
    for (const [key, value] of Object.entries(caller.extra ?? {})) {
      headers[`impersonate-extra-${key}`] = typeof value === 'string' ? value : [...value];
    }
    return headers;
  }

  async #clientTls(caller: Caller): Promise<Partial<KeyedCertificate>> {
    const { admin, clientCa } = this.#target;
    if (caller === 'anonymous') return {};
    if (caller === 'admin' || 'user' in caller) return 'token' in admin ? {} : admin;
    if ('cert' in caller) return { cert: caller.cert, key: caller.key };
    if (!('issue' in caller)) return {};
    const key = JSON.stringify(caller.issue);
    const issued = this.#issued.get(key) ?? this.#issue(caller.issue, clientCa);
    this.#issued.set(key, issued);
    return issued;
  }

  async #issue(request: IssueRequest, clientCa: SigningAuthority | undefined): Promise<KeyedCertificate> {
    if (request.unknownCA === true) {
      this.#unknownCa ??= createAuthority('unknown-ca');
      return issueCertificate(await this.#unknownCa, request);
    }
    if (clientCa === undefined) throw new Error('the CA of client certificates is not known');
    return issueCertificate(clientCa, request);
  }
}

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

function callsOutcome(step: Step, variables: Variables, webhooks: Webhooks | undefined): Outcome {
  const calls = (webhooks?.calls ?? []).filter((call) => call.name === step.calls).map((call) => call.request);
  const { keep } = step;
  const body = keep === undefined ? normalize(calls, variables) : calls.map((call) => keepOnly(call, keep, variables));
  return { status: calls.length, headers: {}, body };
}

/** Supports `status=201`, `json.path=value`, `json.path` (exists), `called=webhook` and `warning=text`. */
function isReached(until: string, response: Response, body: unknown, webhooks: Webhooks | undefined): boolean {
  const [, path = '', wanted] = /^(.*?)(?:=([^\]=]*))?$/.exec(until) ?? [];
  if (path === 'called') return webhooks?.calls.some((call) => call.name === wanted) ?? false;
  if (path === 'warning') return String(response.headers['warning'] ?? '').includes(wanted ?? '');
  if (wanted === undefined) return pick(body, path) !== undefined;
  return String(path === 'status' ? response.status : pick(body, path)) === wanted;
}

function parseBody(response: Response): unknown {
  const type = String(response.headers['content-type'] ?? '');
  if (type.includes('protobuf')) return { base64: '', protobufPrefix: response.bytes.subarray(0, 4).toString('hex') };
  const text = response.bytes.toString('utf8');
  if (!type.includes('json') || text === '') return text;
  const whole = parseJson(text);
  if (whole !== undefined) return whole;
  const lines = text.split('\n').filter((line) => line.trim() !== '');
  return { stream: lines.map((line) => parseJson(line) ?? { unparsed: line }) };
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}
