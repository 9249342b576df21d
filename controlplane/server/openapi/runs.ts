/**
 * Keeps the parts of OpenAPI documents encoded and compressed, except those of OpenAPI 3 documents of built-in groups. Parts
 * are built in slices between which the server handles requests, and documents are assembled from the finished parts. A part of
 * a custom resource lives as long as its row of the catalog.
 */
import { quoteText } from '../../../api/meta/quote.ts';
import { setImmediate } from 'node:timers/promises';
import { stringifyJson } from '../../../api/codec/json.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import { SerialQueue } from '../../../api/machinery/serial-queue.ts';
import { TimeSlice } from '../../../api/machinery/time-slice.ts';
import type { JsonObject } from '../../../api/meta/object.ts';
import type { ResourceInfo } from '../../../api/schema/schema.ts';
import { compressRun, type Run } from '../compressed-runs.ts';
import { buildBaseV2, buildCustomPartV2, frameV2, type BaseV2, type Part } from './document-v2.ts';
import { buildCustomPartV3, buildPartV3, buildSharedV3, frameV3 } from './document-v3.ts';
import {
  encodeDocument,
  encodePairs,
  fieldHeader,
  type PairSection,
  V2_DEFINITIONS,
  V2_PATHS,
  V3_COMPONENTS,
  V3_PATHS,
  V3_SCHEMAS,
} from './encode-document.ts';
import { documentV2, documentV3, v3Components } from './protobuf.ts';
import { builtInRows, isCustom, type OpenApiSource } from './source.ts';

/** The two forms of the documents. */
export type Encoding = 'json' | 'protobuf';

interface PartRuns {
  readonly paths: readonly Run[];
  readonly definitions: readonly Run[];
}

/** The number of members that are encoded without a pause. */
const BATCH = 20;

/** Assembles documents from the runs of their parts. */
export class OpenApiRuns {
  readonly #source: OpenApiSource;
  readonly #clock: Pick<Clock, 'monotonic'>;
  #base: Promise<BaseV2> | undefined;
  /** The rows and the parts of aggregated servers from which the base was built. */
  #builtFrom: readonly unknown[] = [];
  readonly #baseRuns = new Map<Encoding, Promise<PartRuns>>();
  readonly #customRuns = new WeakMap<ResourceInfo, Map<string, Promise<PartRuns>>>();
  readonly #sharedV3 = new Map<string, Promise<readonly Run[]>>();
  /** Builds one part at a time, because the slices of concurrent builds would add up to one long block. */
  readonly #turns = new SerialQueue();

  constructor(source: OpenApiSource, clock: Pick<Clock, 'monotonic'>) {
    this.#source = source;
    this.#clock = clock;
  }

  /** Builds the parts of the document that are not built yet. */
  async prepareV2(encoding: Encoding): Promise<void> {
    await this.#partsV2(encoding, await this.#baseV2());
  }

  async #partsV2(encoding: Encoding, base: BaseV2): Promise<PartRuns[]> {
    const slice = new TimeSlice(this.#clock);
    const parts = [await this.#baseOf(encoding, base)];
    for (const row of this.#customRows()) {
      parts.push(await this.#customOf(row, 2, encoding, () => buildCustomPartV2(this.#source, row, base.parameters)));
      if (slice.isSpent) await slice.pause();
    }
    return parts;
  }

  /** Assembles the document of `/openapi/v2` in the encoding. */
  async documentV2(encoding: Encoding): Promise<Run[]> {
    const base = await this.#baseV2();
    const parts = await this.#partsV2(encoding, base);
    const paths = parts.flatMap((part) => part.paths);
    const definitions = parts.flatMap((part) => part.definitions);
    const { head, tail } = frameV2(this.#source, base.parameters);
    if (encoding === 'json') {
      return jsonRuns([
        `${openObject(head)}"paths":{`,
        paths,
        '},"definitions":{',
        definitions,
        `},${closeObject(tail)}`,
      ]);
    }
    return protobufRuns([
      encodeDocument(documentV2, head),
      section(V2_PATHS.number, paths),
      section(V2_DEFINITIONS.number, definitions),
      encodeDocument(documentV2, tail),
    ]);
  }

  /** Resolves to the runs of the document of a group and version. `rows` are its rows. */
  async documentV3(name: string, rows: readonly ResourceInfo[], encoding: Encoding): Promise<Run[]> {
    const custom = rows.filter((row) => isCustom(this.#source, row));
    const parts: PartRuns[] = [];
    if (custom.length < rows.length || rows.length === 0) {
      parts.push(await this.#turns.run(async () => encodePart(await buildPartV3(this.#source, name), 3, encoding)));
    } else {
      const withScale = custom.some(({ subresources }) => subresources.some((one) => one.name === 'scale'));
      parts.push({ paths: [], definitions: await this.#sharedOf(encoding, withScale) });
    }
    for (const row of custom) {
      parts.push(await this.#customOf(row, 3, encoding, () => buildCustomPartV3(this.#source, row)));
    }
    const paths = parts.flatMap((part) => part.paths);
    const schemas = parts.flatMap((part) => part.definitions);
    const { head, components } = frameV3(this.#source, { isCustom: rows.length > 0 && custom.length === rows.length });
    if (encoding === 'json') {
      const more = Object.keys(components).length === 0 ? '}' : `,${closeObject(components)}`;
      const tail = `}${more}}`;
      return jsonRuns([`${openObject(head)}"paths":{`, paths, '},"components":{"schemas":{', schemas, tail]);
    }
    const inner = await protobufRuns([section(V3_SCHEMAS.number, schemas), encodeDocument(v3Components, components)]);
    return protobufRuns([
      encodeDocument(documentV3, head),
      section(V3_PATHS.number, paths),
      section(V3_COMPONENTS, inner),
    ]);
  }

  #customRows(): ResourceInfo[] {
    return this.#source.catalog.resources().filter((row) => isCustom(this.#source, row));
  }

  #baseV2(): Promise<BaseV2> {
    const from = [...builtInRows(this.#source), ...(this.#source.aggregated?.openApi() ?? [])];
    const same = from.length === this.#builtFrom.length && from.every((one, index) => one === this.#builtFrom[index]);
    if (this.#base === undefined || !same) {
      this.#builtFrom = from;
      this.#baseRuns.clear();
      this.#base = this.#turns.run(() => buildBaseV2(this.#source));
    }
    return this.#base;
  }

  #baseOf(encoding: Encoding, base: BaseV2): Promise<PartRuns> {
    return cachedBuild(this.#baseRuns, encoding, () => this.#turns.run(() => encodePart(base, 2, encoding)));
  }

  #customOf(row: ResourceInfo, version: 2 | 3, encoding: Encoding, build: () => Part): Promise<PartRuns> {
    let runs = this.#customRuns.get(row);
    if (runs === undefined) {
      runs = new Map();
      this.#customRuns.set(row, runs);
    }
    return cachedBuild(runs, `${version} ${encoding}`, () =>
      this.#turns.run(async () => {
        await setImmediate();
        return encodePart(build(), version, encoding);
      }),
    );
  }

  #sharedOf(encoding: Encoding, withScale: boolean): Promise<readonly Run[]> {
    return cachedBuild(this.#sharedV3, `${encoding} ${withScale}`, () =>
      this.#turns.run(async () =>
        encodeMembers(await buildSharedV3(this.#source, { withScale }), V3_SCHEMAS, encoding),
      ),
    );
  }
}

/** Keeps the result of a build under the key. A failure is not kept. */
function cachedBuild<K, T>(all: Map<K, Promise<T>>, key: K, build: () => Promise<T>): Promise<T> {
  const existing = all.get(key);
  if (existing !== undefined) return existing;
  const built = build();
  all.set(key, built);
  built.catch(() => all.delete(key));
  return built;
}

async function encodePart(part: Part, version: 2 | 3, encoding: Encoding): Promise<PartRuns> {
  const [paths, definitions] = version === 2 ? [V2_PATHS, V2_DEFINITIONS] : [V3_PATHS, V3_SCHEMAS];
  return {
    paths: await encodeMembers(part.paths, paths, encoding),
    definitions: await encodeMembers(part.definitions, definitions, encoding),
  };
}

async function encodeMembers(members: JsonObject, pairs: PairSection, encoding: Encoding): Promise<Run[]> {
  const all = Object.entries(members);
  const runs: Run[] = [];
  for (let at = 0; at < all.length; at += BATCH) {
    const batch = all.slice(at, at + BATCH);
    const bytes =
      encoding === 'json'
        ? batch.map(([name, value]) => `${quoteText(name)}:${stringifyJson(value)}`).join(',')
        : encodePairs(pairs, Object.fromEntries(batch));
    runs.push(await compressRun(bytes));
  }
  return runs;
}

const openObject = (members: JsonObject): string => `${stringifyJson(members).slice(0, -1)},`;
const closeObject = (members: JsonObject): string => stringifyJson(members).slice(1);

/** Joins texts and, between them, runs of members with commas. */
async function jsonRuns(parts: readonly (string | readonly Run[])[]): Promise<Run[]> {
  const comma = await compressRun(',');
  const runs: Run[] = [];
  for (const part of parts) {
    if (typeof part === 'string') runs.push(await compressRun(part));
    else part.forEach((run, index) => runs.push(...(index === 0 ? [run] : [comma, run])));
  }
  return runs;
}

interface Section {
  readonly header: Buffer;
  readonly runs: readonly Run[];
}

function section(number: number, runs: readonly Run[]): Section {
  const sizeBytes = runs.reduce((sum, run) => sum + run.sizeBytes, 0);
  return { header: fieldHeader(number, sizeBytes), runs };
}

async function protobufRuns(parts: readonly (Buffer | Section)[]): Promise<Run[]> {
  const runs: Run[] = [];
  for (const part of parts) {
    if (Buffer.isBuffer(part)) runs.push(await compressRun(part));
    else runs.push(await compressRun(part.header), ...part.runs);
  }
  return runs;
}
