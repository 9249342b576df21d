/**
 * `/openapi/v2` and `/openapi/v3`: schemas of everything that is served, for `kubectl explain`, client-side checks and
 * client generators.
 *
 * Documents are made on first use after a change of the catalog, in each encoding once, and kept; requests that come while
 * one is being made wait for the same. The index of OpenAPI 3 costs nothing: its hashes are of what the documents are made
 * from, and addresses with a hash may be cached for ever.
 */
import { createHash } from 'node:crypto';
import { encodeJson } from '../../../api/codec/json.ts';
import type { JsonObject } from '../../../api/meta/object.ts';
import { mergeOpenApi } from '../../aggregation/backend-openapi.ts';
import { acceptClauses } from '../accept.ts';
import { Document, sendDocument } from '../document.ts';
import { JSON_TYPE } from '../media-type.ts';
import { TEXT_TYPE, reading, type PathHandlers } from '../path-handlers.ts';
import type { ApiRequest } from '../request.ts';
import { buildDocumentV2 } from './document-v2.ts';
import { buildDocumentV3 } from './document-v3.ts';
import { plainDocuments } from './discovery-paths.ts';
import { documentOf } from './operations.ts';
import { documentV2, documentV3, encodeDocument } from './protobuf.ts';
import { groupVersionsOf, type OpenApiSource } from './source.ts';

type Encoding = 'json' | 'protobuf';

export interface OpenApi {
  /** The schemas have changed though the rows have not (a custom resource's). */
  invalidate(): void;
}

/** Changes of the catalog invalidate by themselves. */
export function installOpenApi(paths: PathHandlers, source: OpenApiSource): OpenApi {
  const openApi = new OpenApiDocuments(source);
  source.catalog.onChange(() => openApi.invalidate());
  source.aggregated?.onChange(() => openApi.invalidate());
  paths.exact(
    '/openapi/v2',
    reading((request) => openApi.serveV2(request)),
  );
  paths.exact(
    '/openapi/v3',
    reading((request) => openApi.serveIndex(request)),
  );
  paths.tree(
    '/openapi/v3/',
    reading((request) => openApi.serveV3(request)),
  );
  return openApi;
}

class OpenApiDocuments implements OpenApi {
  readonly #source: OpenApiSource;
  readonly #documents = new Map<string, Promise<Document>>();
  readonly #objects = new Map<string, Promise<JsonObject>>();
  readonly #hashes = new Map<string, string>();
  #index: Document | undefined;
  #known: ReadonlySet<string> | undefined;

  constructor(source: OpenApiSource) {
    this.#source = source;
  }

  invalidate(): void {
    this.#documents.clear();
    this.#objects.clear();
    this.#hashes.clear();
    this.#index = undefined;
    this.#known = undefined;
  }

  async serveV2(request: ApiRequest): Promise<void> {
    const encoding = negotiate(request.header('accept'), 'v2');
    if (encoding === undefined) return empty(request, 406);
    const document = await this.#document('v2', encoding, () => this.#mergedV2());
    await sendDocument(request, document, { negotiated: true, tagged: true });
  }

  async #mergedV2(): Promise<JsonObject> {
    const document = await buildDocumentV2(this.#source);
    for (const part of this.#source.aggregated?.openApi() ?? []) mergeOpenApi(document, part);
    return document;
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
      this.#index = new Document(TEXT_TYPE, encodeJson({ paths }));
    }
    await sendDocument(request, this.#index, { negotiated: false, tagged: true });
  }

  async serveV3(request: ApiRequest): Promise<void> {
    const name = request.info.path.slice('/openapi/v3/'.length).replace(/\/$/, '');
    if (!this.#names().has(name)) return empty(request, 404);
    const encoding = negotiate(request.header('accept'), 'v3');
    if (encoding === undefined) return empty(request, 406);
    const hash = this.#hash(name);
    const asked = request.query.get('hash');
    if (asked !== null && asked !== '' && asked !== hash) return redirect(request, `/openapi/v3/${name}?hash=${hash}`);
    const document = await this.#document(name, encoding, () => buildDocumentV3(this.#source, name));
    await sendDocument(request, document, { negotiated: true, tagged: true, immutable: asked === hash });
  }

  /** Of all documents of OpenAPI 3, sorted. */
  #names(): ReadonlySet<string> {
    this.#known ??= new Set(
      [...groupVersionsOf(this.#source).map(documentOf), ...plainDocuments(this.#source)].sort((a, b) =>
        a < b ? -1 : 1,
      ),
    );
    return this.#known;
  }

  #hash(name: string): string {
    let hash = this.#hashes.get(name);
    if (hash === undefined) {
      const digest = createHash('sha512').update(this.#source.release).update(name);
      for (const row of this.#source.catalog.resources()) {
        if (documentOf(row) !== name) continue;
        digest.update(JSON.stringify([row, this.#source.customSchema?.(row)]));
      }
      hash = digest.digest('hex').toUpperCase();
      this.#hashes.set(name, hash);
    }
    return hash;
  }

  #document(key: string, encoding: Encoding, build: () => Promise<JsonObject>): Promise<Document> {
    const name = `${key} ${encoding}`;
    let document = this.#documents.get(name);
    if (document === undefined) {
      document = this.#encode(key, encoding, build);
      this.#documents.set(name, document);
      // A failure is answered to who waits for it, and tried again for the next.
      document.catch(() => this.#documents.delete(name));
    }
    return document;
  }

  async #encode(key: string, encoding: Encoding, build: () => Promise<JsonObject>): Promise<Document> {
    const version = key === 'v2' ? 'v2' : 'v3';
    let object = this.#objects.get(key);
    if (object === undefined) {
      object = build();
      this.#objects.set(key, object);
    }
    try {
      const value = await object;
      if (encoding === 'json') return new Document(JSON_TYPE, encodeJson(value));
      const bytes = encodeDocument(version === 'v2' ? documentV2 : documentV3, value);
      return new Document(`application/com.github.proto-openapi.spec.${version}.v1.0+protobuf`, bytes);
    } finally {
      // Bytes are all that is kept.
      if (this.#objects.get(key) === object) this.#objects.delete(key);
    }
  }
}

function negotiate(accept: string | undefined, version: 'v2' | 'v3'): Encoding | undefined {
  const binary = `application/com.github.proto-openapi.spec.${version}`;
  for (const { type } of acceptClauses(accept)) {
    if (type === '*/*' || type === 'application/*' || type === JSON_TYPE) return 'json';
    if (type === `${binary}@v1.0+protobuf` || type === `${binary}.v1.0+protobuf`) return 'protobuf';
  }
  return undefined;
}

function empty(request: ApiRequest, status: number): void {
  const headers = request.responseHeaders(TEXT_TYPE);
  delete headers['content-type'];
  request.status = status;
  request.exchange.send(status, headers, undefined);
}

function redirect(request: ApiRequest, location: string): void {
  const headers = request.responseHeaders(TEXT_TYPE);
  headers['location'] = location;
  request.status = 301;
  request.exchange.send(301, headers, undefined);
}
