/**
 * Server-side applies the manifests of real projects, one document after the other, and compares each response with the one of
 * kube-apiserver 1.36.2 to the same bytes.
 *
 * `manifests/PROJECT.jsonl.gz` has a line for each document. Later documents depend on earlier ones (a definition, then its
 * objects), so a project always runs completely and in order, with a server without controllers. Values that a server chooses
 * (uids, times, addresses, ports) and values that controllers write are not compared. `differing-manifests.txt` lists
 * the documents whose responses differ, with reasons.
 */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { Agent, request as httpsRequest } from 'node:https';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { parseJson } from '../../api/codec/json.ts';
import { normalizeManifest, type Json } from './manifest-normalization.ts';
import type { Target } from './replay.ts';

const RECORDINGS = join(import.meta.dirname, 'manifests');
const DIFFERING = join(import.meta.dirname, 'differing-manifests.txt');
const ENDING = '.jsonl.gz';
const REQUEST_TIMEOUT_MS = 60_000;
const ESTABLISH_TRIES = 200;
const ESTABLISH_PAUSE_MS = 50;
const SHOWN_DIFFERENCES = 30;
const SHOWN_CHARS = 400;
const APPLY_TYPE = 'application/apply-patch+yaml';

export interface ManifestOptions {
  /** The projects to run, or all. */
  readonly projects: readonly string[] | undefined;
  readonly diff: boolean;
  readonly check: boolean;
  readonly update: boolean;
}

interface Recorded {
  readonly key: string;
  readonly path: string;
  readonly kind: string;
  readonly body: string;
  readonly status: number;
  readonly warnings: readonly string[];
  readonly answer: Json;
}

interface Answer {
  readonly status: number;
  readonly warnings: readonly string[];
  readonly body: Json;
}

interface Outcome {
  readonly title: string;
  readonly matches: boolean;
}

/** Resolves to the exit status. */
export async function replayManifests(target: Target, options: ManifestOptions): Promise<number> {
  const projects = options.projects ?? recordedProjects();
  const replay = new ManifestReplay(target, options.diff);
  const outcomes: Outcome[] = [];
  try {
    for (const project of projects) {
      const own = await replay.project(project);
      print(`${String(matching(own).length).padStart(4)} of ${String(own.length).padStart(4)}  ${project}`);
      outcomes.push(...own);
    }
  } finally {
    replay.close();
  }
  print(`${matching(outcomes).length} of ${outcomes.length} documents match`);
  return settle(outcomes, projects, options);
}

function recordedProjects(): string[] {
  return readdirSync(RECORDINGS)
    .filter((name) => name.endsWith(ENDING))
    .map((name) => name.slice(0, -ENDING.length))
    .sort();
}

const matching = (outcomes: readonly Outcome[]): string[] =>
  outcomes.filter(({ matches }) => matches).map(({ title }) => title);

/** Prints the documents that no longer match, and the listed ones that match now. Rewrites the list on request. */
function settle(outcomes: readonly Outcome[], projects: readonly string[], options: ManifestOptions): number {
  const known = readDiffering();
  const lost = outcomes.filter(({ title, matches }) => !matches && !known.has(title));
  for (const { title } of lost) print(`no longer matches: ${title}`);
  const empty = projects.filter((project) => !outcomes.some(({ title }) => title.startsWith(`${project}/`)));
  for (const project of empty) print(`was not replayed: ${project}`);
  if (options.update) {
    const others = [...known].filter(([title]) => !projects.includes(title.split('/')[0] ?? ''));
    const differing = outcomes
      .filter(({ matches }) => !matches)
      .map(({ title }) => [title, known.get(title) ?? 'not explained'] as const);
    const lines = [...others, ...differing].map(([title, reason]) => `${title} # ${reason}\n`);
    writeFileSync(DIFFERING, lines.sort().join(''));
  }
  return options.check && lost.length + empty.length > 0 ? 1 : 0;
}

/** Returns the reason for each document that is known to differ, by title. In titles, `#` has no blanks around it. */
function readDiffering(): ReadonlyMap<string, string> {
  const lines = readFileSync(DIFFERING, { encoding: 'utf8', flag: 'a+' }).split('\n');
  return new Map(
    lines
      .filter((line) => line !== '')
      .map((line) => {
        const [title = '', reason = ''] = line.split(' # ');
        return [title, reason] as const;
      }),
  );
}

class ManifestReplay {
  readonly #target: Target;
  readonly #showsDifferences: boolean;
  readonly #agent = new Agent({ keepAlive: true });
  readonly #namespaces = new Set<string>();

  constructor(target: Target, showsDifferences: boolean) {
    this.#target = target;
    this.#showsDifferences = showsDifferences;
  }

  close(): void {
    this.#agent.destroy();
  }

  async project(project: string): Promise<Outcome[]> {
    const outcomes: Outcome[] = [];
    const definitions: string[] = [];
    const remote: string[] = [];
    let phase = '';
    for (const row of readRecording(project)) {
      const [rowPhase = ''] = row.key.split('/');
      if (rowPhase !== phase) for (const path of definitions.splice(0)) await this.#established(path);
      phase = rowPhase;
      await this.#prepareNamespace(row.path);
      const answer = await this.#apply(row.path, row.body, '&fieldValidation=Strict');
      if (row.kind === 'CustomResourceDefinition') definitions.push(row.path);
      if (/Webhook|APIService|AdmissionPolicyBinding/.test(row.kind)) remote.push(row.path);
      outcomes.push({ title: `${project}/${row.key}`, matches: this.#compare(project, row, answer) });
    }
    // Objects that make the server call other servers must not disturb the next project.
    for (const path of remote) await this.#call('DELETE', path);
    return outcomes;
  }

  #compare(project: string, row: Recorded, answer: Answer): boolean {
    const want = { status: row.status, warnings: [...row.warnings], answer: row.answer };
    const got = { status: answer.status, warnings: [...answer.warnings], answer: normalizeManifest(answer.body) };
    const differences = [...differencesOf(want, got)];
    if (this.#showsDifferences && differences.length > 0) {
      print(`FAIL  ${project}/${row.key} ${row.kind}`);
      for (const { at, left, right } of differences.slice(0, SHOWN_DIFFERENCES)) {
        print(`        ${at}\n          want ${shown(left)}\n          got  ${shown(right)}`);
      }
    }
    return differences.length === 0;
  }

  async #established(path: string): Promise<void> {
    for (let tries = 0; tries < ESTABLISH_TRIES; tries += 1) {
      const { status, body } = await this.#call('GET', path);
      const text = JSON.stringify(member(member(body, 'status'), 'conditions') ?? []);
      if (status === 404 || /"Established"/.test(text) || /"NamesAccepted"/.test(text)) return;
      await new Promise((resolve) => setTimeout(resolve, ESTABLISH_PAUSE_MS));
    }
  }

  async #prepareNamespace(path: string): Promise<void> {
    const name = /\/namespaces\/([^/]+)\//.exec(path)?.[1];
    if (name === undefined || this.#namespaces.has(name)) return;
    this.#namespaces.add(name);
    const space = { apiVersion: 'v1', kind: 'Namespace', metadata: { name } };
    await this.#apply(`/api/v1/namespaces/${name}`, JSON.stringify(space));
    const account = { apiVersion: 'v1', kind: 'ServiceAccount', metadata: { name: 'default', namespace: name } };
    await this.#apply(`/api/v1/namespaces/${name}/serviceaccounts/default`, JSON.stringify(account));
  }

  #apply(path: string, body: string, query = ''): Promise<Answer> {
    return this.#call('PATCH', `${path}?fieldManager=raw&force=true${query}`, body);
  }

  #call(method: string, path: string, body?: string): Promise<Answer> {
    const { url, admin } = this.#target;
    const proof = 'token' in admin ? {} : admin;
    const headers: Record<string, string> = {
      accept: 'application/json',
      ...('token' in admin ? { authorization: `Bearer ${admin.token}` } : {}),
      ...(body === undefined ? {} : { 'content-type': APPLY_TYPE }),
    };
    const options = { method, headers, agent: this.#agent, rejectUnauthorized: false, timeout: REQUEST_TIMEOUT_MS };
    return new Promise((resolve, reject) => {
      const request = httpsRequest(url + path, { ...options, ...proof }, (response) => {
        const chunks: Buffer[] = [];
        response.on('data', (chunk: Buffer) => chunks.push(chunk));
        response.on('error', reject);
        response.on('end', () => {
          const text = Buffer.concat(chunks).toString();
          const isJson = String(response.headers['content-type']).includes('json');
          const warnings = response.headersDistinct['warning'] ?? [];
          resolve({ status: response.statusCode ?? 0, warnings, body: isJson ? parseJson(text).value : text });
        });
      });
      request.on('timeout', () => request.destroy(new Error(`no answer in ${REQUEST_TIMEOUT_MS} ms`)));
      request.on('error', reject);
      request.end(body);
    });
  }
}

function readRecording(project: string): Recorded[] {
  return gunzipSync(readFileSync(join(RECORDINGS, `${project}${ENDING}`)))
    .toString()
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => parseJson(line).value as unknown as Recorded);
}

function member(value: Json, name: string): Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? value[name] : undefined;
}

interface Difference {
  readonly at: string;
  readonly left: Json;
  readonly right: Json;
}

function* differencesOf(left: Json, right: Json, at = ''): Generator<Difference> {
  if (left === right) return;
  if (typeof left !== 'object' || typeof right !== 'object' || left === null || right === null) {
    yield { at, left, right };
  } else if (Array.isArray(left) !== Array.isArray(right)) yield { at, left, right };
  else {
    const [a, b] = [left as { [key: string]: Json }, right as { [key: string]: Json }];
    for (const key of new Set([...Object.keys(a), ...Object.keys(b)])) {
      yield* differencesOf(a[key], b[key], `${at}/${key}`);
    }
  }
}

function shown(value: Json): string {
  const text = value === undefined ? 'nothing' : stringify(value);
  return text.length > SHOWN_CHARS ? `${text.slice(0, SHOWN_CHARS)}…` : text;
}

const stringify = (value: Json): string =>
  JSON.stringify(value, (_key, inner: unknown) => (typeof inner === 'bigint' ? `${inner}n` : inner));

function print(line: string): void {
  process.stdout.write(`${line}\n`);
}
