/** Serves the webhooks that scenarios register. They respond by rules, and record the requests. */
import { createServer, type Server } from 'node:https';
import { randomBytes } from 'node:crypto';
import { text } from 'node:stream/consumers';
import type { AddressInfo } from 'node:net';
import { createAuthority, issueCertificate } from './certificates.ts';
import { fill, isObject, pick } from './json-path.ts';
import type { Scenario, WebhookAnswer, WebhookRule } from './scenario.ts';

export interface WebhookCall {
  readonly name: string;
  readonly request: Record<string, unknown>;
}

/** The webhooks of one scenario. */
export interface Webhooks {
  readonly url: string;
  /** The CA as base64 of PEM. */
  readonly ca: string;
  readonly calls: WebhookCall[];
}

const NO_REVIEW = {};

/** A server of webhooks on loopback. */
export class WebhookServer {
  readonly #server: Server;
  readonly #ca: string;
  readonly #known = new Map<
    string,
    { readonly rules: NonNullable<Scenario['webhooks']>; readonly calls: WebhookCall[] }
  >();

  private constructor(server: Server, ca: string) {
    this.#server = server;
    this.#ca = ca;
  }

  static async start(): Promise<WebhookServer> {
    const authority = await createAuthority('webhook-ca');
    const server = createServer(
      await issueCertificate(authority, { cn: 'webhook', usage: 'serverAuth' }, ['127.0.0.1']),
    );
    const started = new WebhookServer(server, Buffer.from(authority.pem).toString('base64'));
    server.on('request', (request, response) => {
      void text(request).then(async (body) => {
        const answer = await started.#answer(
          request.method ?? '',
          request.url ?? '/',
          request.headers['content-type'] ?? '',
          body,
        );
        response.writeHead(answer.status, { 'content-type': answer.contentType });
        response.end(answer.body);
      });
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    return started;
  }

  /** Serves the webhooks of one scenario below a path of their own. */
  add(rules: NonNullable<Scenario['webhooks']>): Webhooks {
    const key = randomBytes(6).toString('hex');
    const calls: WebhookCall[] = [];
    this.#known.set(key, { rules, calls });
    const { port } = this.#server.address() as AddressInfo;
    return { url: `https://127.0.0.1:${port}/${key}`, ca: this.#ca, calls };
  }

  close(): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }

  async #answer(
    method: string,
    target: string,
    contentType: string,
    body: string,
  ): Promise<{ status: number; contentType: string; body: string }> {
    const url = new URL(target, 'https://webhook');
    const [, key = '', name = ''] = url.pathname.split('/');
    const hook = this.#known.get(key);
    const review: unknown = body === '' ? NO_REVIEW : JSON.parse(body);
    if (isOwn(review)) hook?.calls.push({ name, request: { method, query: url.search, contentType, body: review } });
    const answer = answerOf(hook?.rules[name], review);
    if (answer === undefined) return { status: 404, contentType: 'text/plain', body: 'no such webhook' };
    if (answer.delay !== undefined) await new Promise((resolve) => setTimeout(resolve, answer.delay));
    const raw = 'raw' in answer;
    const content: unknown = raw ? answer.raw : reviewAround(answer, review);
    return {
      status: raw && typeof answer.status === 'number' ? answer.status : 200,
      contentType: answer.contentType ?? 'application/json',
      body: typeof content === 'string' ? content : JSON.stringify(content),
    };
  }
}

/** Calls by the cluster's own controllers are not compared. */
function isOwn(review: unknown): boolean {
  const who = String(pick(review, 'request.userInfo.username') ?? '');
  const what = String(pick(review, 'request.name') ?? '');
  return !/^system:(kube-|apiserver$|serviceaccount:kube-system:)/.test(who) && !what.endsWith('-ca.crt');
}

function answerOf(rules: readonly WebhookRule[] | undefined, review: unknown): WebhookAnswer | undefined {
  const rule = rules?.find((one) =>
    Object.entries(one.when ?? {}).every(([path, wanted]) => pick(review, path) === wanted),
  );
  if (rule === undefined) return undefined;
  return fill(rule.answer, {
    uid: pick(review, 'request.uid'),
    apiVersion: pick(review, 'apiVersion'),
    ...requestValues(rule.answer, review),
  });
}

/** Returns the values of the review that a response refers to as `{{request.…}}`. A missing value is empty. */
function requestValues(answer: WebhookAnswer, review: unknown): Record<string, unknown> {
  const paths = [...JSON.stringify(answer).matchAll(/\{\{(request\.[\w.]+)\}\}/g)].map(([, path = '']) => path);
  return Object.fromEntries(paths.map((path) => [path, pick(review, path) ?? '']));
}

function reviewAround(answer: WebhookAnswer, review: unknown): unknown {
  const { delay: _delay, contentType: _contentType, ...given } = answer;
  const response: Record<string, unknown> = { uid: pick(review, 'request.uid'), ...given };
  if (Array.isArray(response['patch'])) {
    response['patch'] = Buffer.from(JSON.stringify(response['patch'])).toString('base64');
    response['patchType'] ??= 'JSONPatch';
  }
  return { apiVersion: isObject(review) ? review['apiVersion'] : undefined, kind: 'AdmissionReview', response };
}
