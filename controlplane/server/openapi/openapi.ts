/**
 * Serves `/openapi/v2` and `/openapi/v3`: the schemas of all served resources, for `kubectl explain`, validation in clients and
 * client generators. Documents are assembled on request and kept until their resources change.
 */
import { createHash } from 'node:crypto';
import { encodeJson, stringifyJson } from '../../../api/codec/json.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import type { JsonObject } from '../../../api/meta/object.ts';
import type { ResourceInfo } from '../../../api/schema/schema.ts';
import { acceptClauses } from '../../../api/http/accept.ts';
import { Document, documentOfRuns, sendDocument, type SendableDocument } from '../document.ts';
import type { PathHandlers } from '../path-handlers.ts';
import type { ApiRequest } from '../request.ts';
import { plainDocuments } from './discovery-paths.ts';
import { NewestDocument } from './newest-document.ts';
import { documentOf } from './operations.ts';
import { OpenApiRuns, type Encoding } from './runs.ts';
import { groupVersionsOf, type OpenApiSource } from './source.ts';
import { JSON_TYPE, TEXT_TYPE } from '../../../api/http/media-types.ts';

/** Registers the paths. Changes of the catalog invalidate the documents. */
export function installOpenApi(paths: PathHandlers, source: OpenApiSource, clock: Clock): void {
  const openApi = new OpenApiDocuments(source, clock);
  source.catalog.onChange(() => openApi.invalidate());
  source.aggregated?.onChange(() => openApi.invalidate());
  // kube-apiserver answers every method alike.
  paths.exact('/openapi/v2', (request) => openApi.serveV2(request));
  paths.exact('/openapi/v3', (request) => openApi.serveIndex(request));
  paths.tree('/openapi/v3/', (request) => openApi.serveV3(request), { isListed: true });
}

const VARY_V2 = 'Accept-Encoding, Accept';
/** The time between two searches for parts that have to be built. */
const PREPARATION_MS = 100;

class OpenApiDocuments {
  readonly #source: OpenApiSource;
  readonly #clock: Clock;
  readonly #runs: OpenApiRuns;
  /** The encodings of version 2 that clients have requested. */
  readonly #v2 = new Map<Encoding, NewestDocument<SendableDocument>>();
  /** The documents of version 3 by encoding and name, with the hash of the inputs from which each was built. */
  readonly #v3 = new Map<string, { readonly hash: string; readonly document: Promise<SendableDocument> }>();
  readonly #rowDigests = new WeakMap<ResourceInfo, Buffer>();
  #rows: ReadonlyMap<string, readonly ResourceInfo[]> | undefined;
  #index: Document | undefined;
  #documentNames: ReadonlySet<string> | undefined;
  #isPreparing = false;
  #isPrepared = true;

  constructor(source: OpenApiSource, clock: Clock) {
    this.#source = source;
    this.#clock = clock;
    this.#runs = new OpenApiRuns(source, clock);
  }

  invalidate(): void {
    for (const document of this.#v2.values()) document.invalidate();
    this.#rows = undefined;
    this.#index = undefined;
    this.#documentNames = undefined;
    this.#isPrepared = false;
    if (this.#v2.size === 0 || this.#isPreparing) return;
    this.#isPreparing = true;
    setImmediate(() => {
      // An error is returned to the next client that requests the document.
      this.#prepare().catch(() => undefined);
    });
  }

  /** Builds the parts of the documents that clients are likely to request. */
  async #prepare(): Promise<void> {
    try {
      while (!this.#isPrepared) {
        this.#isPrepared = true;
        for (const encoding of this.#v2.keys()) await this.#runs.prepareV2(encoding);
        await this.#clock.sleep(PREPARATION_MS);
      }
    } finally {
      this.#isPreparing = false;
    }
  }

  async serveV2(request: ApiRequest): Promise<void> {
    const encoding = negotiate(request.header('accept'), 'v2');
    if (encoding === undefined) return sendEmpty(request, 406, VARY_V2);
    let newest = this.#v2.get(encoding);
    if (newest === undefined) {
      newest = new NewestDocument(
        async () => documentOfRuns(contentTypeOf('v2', encoding), await this.#runs.documentV2(encoding), this.#clock),
        this.#clock,
      );
      this.#v2.set(encoding, newest);
    }
    await sendDocument(request, await newest.get(), { vary: VARY_V2, tagged: true });
  }

  async serveIndex(request: ApiRequest): Promise<void> {
    if (this.#index === undefined) {
      const paths: JsonObject = {};
      for (const name of this.#names()) {
        paths[name] = { serverRelativeURL: `/openapi/v3/${name}?hash=${this.#hash(name)}` };
      }
      for (const { path, url } of this.#source.aggregated?.openApi() ?? []) {
        if (url !== '') paths[path] = { serverRelativeURL: url };
      }
      this.#index = new Document(TEXT_TYPE, encodeJson({ paths }), this.#clock.now());
    }
    await sendDocument(request, this.#index, { tagged: false });
  }

  async serveV3(request: ApiRequest): Promise<void> {
    const name = request.info.path.slice('/openapi/v3/'.length);
    if (!this.#names().has(name)) return sendEmpty(request, 404);
    const encoding = negotiate(request.header('accept'), 'v3');
    if (encoding === undefined) return sendEmpty(request, 406, 'Accept');
    const hash = this.#hash(name);
    const wanted = request.query.get('hash');
    if (wanted !== null && wanted !== '' && wanted !== hash)
      return redirect(request, `/openapi/v3/${name}?hash=${hash}`, hash);
    const document = await this.#documentV3(name, hash, encoding);
    const caching = wanted === hash ? { caching: 'public, immutable' as const } : {};
    await sendDocument(request, document, { vary: 'Accept', tagged: true, ...caching });
  }

  #documentV3(name: string, hash: string, encoding: Encoding): Promise<SendableDocument> {
    const key = `${encoding} ${name}`;
    const existing = this.#v3.get(key);
    if (existing?.hash === hash) return existing.document;
    const rows = this.#rowsOf(name);
    const build = async (): Promise<SendableDocument> =>
      documentOfRuns(contentTypeOf('v3', encoding), await this.#runs.documentV3(name, rows, encoding), this.#clock);
    const assembled = { hash, document: build() };
    this.#v3.set(key, assembled);
    // The waiting requests get the error, and the next request tries again.
    assembled.document.catch(() => {
      if (this.#v3.get(key) === assembled) this.#v3.delete(key);
    });
    return assembled.document;
  }

  /** Returns the names of all OpenAPI 3 documents, sorted. */
  #names(): ReadonlySet<string> {
    if (this.#documentNames !== undefined) return this.#documentNames;
    const names = new Set(
      [...groupVersionsOf(this.#source.catalog.resources()).map(documentOf), ...plainDocuments(this.#source)].sort(
        (a, b) => (a < b ? -1 : 1),
      ),
    );
    for (const key of this.#v3.keys()) if (!names.has(key.slice(key.indexOf(' ') + 1))) this.#v3.delete(key);
    this.#documentNames = names;
    return names;
  }

  #rowsOf(name: string): readonly ResourceInfo[] {
    this.#rows ??= Map.groupBy(this.#source.catalog.resources(), documentOf);
    return this.#rows.get(name) ?? [];
  }

  #hash(name: string): string {
    const digest = createHash('sha512').update(this.#source.release).update(name);
    for (const row of this.#rowsOf(name)) digest.update(this.#digestOf(row));
    return digest.digest('hex').toUpperCase();
  }

  #digestOf(row: ResourceInfo): Buffer {
    let digest = this.#rowDigests.get(row);
    if (digest === undefined) {
      const revision = this.#source.customSchema?.(row)?.revision ?? '';
      digest = createHash('sha512')
        .update(stringifyJson([row, revision]))
        .digest();
      this.#rowDigests.set(row, digest);
    }
    return digest;
  }
}

function contentTypeOf(version: 'v2' | 'v3', encoding: Encoding): string {
  return encoding === 'json' ? JSON_TYPE : `application/com.github.proto-openapi.spec.${version}.v1.0+protobuf`;
}

function negotiate(accept: string | undefined, version: 'v2' | 'v3'): Encoding | undefined {
  const binary = `application/com.github.proto-openapi.spec.${version}`;
  for (const { type } of acceptClauses(accept)) {
    if (type === '*/*' || type === 'application/*' || type === JSON_TYPE) return 'json';
    if (type === `${binary}@v1.0+protobuf` || type === `${binary}.v1.0+protobuf`) return 'protobuf';
  }
  return undefined;
}

function sendEmpty(request: ApiRequest, status: number, vary?: string): void {
  const headers = request.responseHeaders(TEXT_TYPE);
  delete headers['content-type'];
  if (vary !== undefined) headers['vary'] = vary;
  request.status = status;
  request.exchange.send(status, headers, undefined);
}

function redirect(request: ApiRequest, location: string, hash: string): void {
  const headers = request.responseHeaders(JSON_TYPE);
  Object.assign(headers, { location, etag: `"${hash}"`, vary: 'Accept', 'content-length': '0' });
  request.status = 301;
  request.exchange.send(301, headers, undefined);
}
