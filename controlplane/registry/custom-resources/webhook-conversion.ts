/**
 * Converts between versions of a custom resource by the webhook of its definition. Of the metadata in the response, only labels
 * and annotations are used.
 */
import { randomUUID } from 'node:crypto';
import { stringifyJson } from '../../../api/codec/json.ts';
import { errorMessage } from '../../../api/meta/error-message.ts';
import type { FieldError } from '../../../api/meta/field-error.ts';
import { cloneJson, jsonEqual } from '../../../api/meta/json-equality.ts';
import { quoteText } from '../../../api/meta/quote.ts';
import { goType } from '../../../api/meta/go-text.ts';
import { isJsonObject } from '../../../api/meta/json-object.ts';
import { apiVersionOf, type JsonObject, type JsonValue, type KubeObject } from '../../../api/meta/object.ts';
import { validateLabels } from '../../../api/meta/selector.ts';
import { newErrorWithoutReason } from '../../../api/meta/status-error.ts';
import { validateAnnotations } from '../../../api/meta/validation.ts';
import type { Conversion } from '../strategy.ts';
import { convertedObjects, readObject } from './conversion-answer.ts';
import type { WebhookClientConfig } from '../kinds/apiextensions/definition.ts';
import { dropNulls } from '../schemas/defaulting.ts';
import type { JsonSchema } from '../schemas/json-schema.ts';
import { prune } from '../schemas/pruning.ts';
import { renamingConversion, storedReader, type VersionSchema } from './version-conversion.ts';

/** Calls the webhook and returns its response as JSON. Rejects with the reason of a failure. */
export type CallConversion = (config: WebhookClientConfig, body: string) => Promise<unknown>;

interface WebhookConversionOptions {
  readonly group: string;
  readonly kind: string;
  readonly config: WebhookClientConfig;
  readonly reviewVersions: readonly string[];
  readonly call: CallConversion;
}

const GROUP = 'apiextensions.k8s.io';
const SUPPORTED = ['v1', 'v1beta1'];

/** The versions of one served resource. */
interface ConvertedVersions {
  readonly stored: VersionSchema;
  readonly served: VersionSchema;
  /** All versions of the definition, because objects may have been stored in any of them. */
  readonly all: readonly VersionSchema[];
}

/** The conversion between the versions of a definition with the strategy `Webhook`. */
export interface WebhookConversion extends Conversion {
  /** Converts one object to a version of this name, and does not prune the response by a schema. */
  convertTo(object: KubeObject, version: string): Promise<KubeObject>;
}

/** Returns the conversion by a webhook. It rejects with a 500 if the webhook fails or its response is invalid. */
export function webhookConversion(
  { group, kind, config, reviewVersions, call }: WebhookConversionOptions,
  { stored, served, all }: ConvertedVersions,
): WebhookConversion {
  const read = storedReader(group, all);
  const review = reviewVersions.find((version) => SUPPORTED.includes(version)) ?? 'v1';

  async function ask(objects: readonly KubeObject[], version: string): Promise<KubeObject[]> {
    const converted: KubeObject[] = [];
    for (const batch of batchesOf(objects)) converted.push(...(await askBatch(batch, version)));
    return converted;
  }

  async function askBatch({ objects, texts, from }: Batch, version: string): Promise<KubeObject[]> {
    const desiredAPIVersion = apiVersionOf({ group, version });
    const webhook = `conversion webhook for ${objects[0]?.apiVersion ?? ''}, Kind=${kind}`;
    const fail = (why: string): Error => newErrorWithoutReason(`${webhook} failed: ${why}`);
    const uid = randomUUID();
    const [apiVersion, wanted] = [`${GROUP}/${review}`, desiredAPIVersion].map(quoteText);
    const request = `{"uid":"${uid}","desiredAPIVersion":${wanted},"objects":[${texts.join()}]}`;
    // Kubernetes encodes the empty response as well.
    const response = '{"uid":"","convertedObjects":null,"result":{"metadata":{}}}';
    const body = `{"kind":"ConversionReview","apiVersion":${apiVersion},"request":${request},"response":${response}}`;
    let converted: readonly JsonValue[];
    try {
      converted = convertedObjects(await call(config, body), { uid, version: review });
    } catch (error) {
      throw fail(errorMessage(error));
    }
    if (converted.length !== objects.length) {
      throw newErrorWithoutReason(`${webhook} returned ${converted.length} objects, expected ${objects.length}`);
    }
    return objects.map((object, index) =>
      merged(object, readObject(converted[index]), { apiVersion: desiredAPIVersion, index: from + index, webhook }),
    );
  }

  async function convert(objects: readonly KubeObject[], { name, schema }: VersionSchema): Promise<KubeObject[]> {
    const wanted = apiVersionOf({ group, version: name });
    const others = objects.filter(({ apiVersion }) => apiVersion !== wanted);
    const converted = others.length === 0 ? [] : await ask(others, name);
    let next = 0;
    return objects.map((object) => {
      if (object.apiVersion === wanted) return object;
      return fitted(converted[next++] ?? object, schema);
    });
  }

  return {
    ...renamingConversion(group, stored, stored),
    convertTo: async (object, version) => (await ask([object], version))[0] ?? object,
    convertAll: (objects, to) => (to === 'stored' ? convert(objects, stored) : convert(objects.map(read), served)),
  };
}

/** The limits of one call; an object that exceeds them is sent alone. The response is parsed in one turn of the event loop. */
const MAX_CHARACTERS = 1 << 20;
const MAX_VALUES = 50_000;

/** Objects that one call converts. */
interface Batch {
  readonly objects: readonly KubeObject[];
  readonly texts: readonly string[];
  /** The index of the first of these objects among all. */
  readonly from: number;
}

/** Yields the objects in batches, each encoded when it is needed. */
function* batchesOf(all: readonly KubeObject[]): Generator<Batch> {
  let [objects, texts, from]: [KubeObject[], string[], number] = [[], [], 0];
  let [characters, values] = [0, 0];
  for (const [index, object] of all.entries()) {
    const text = stringifyJson(unversioned(object));
    const count = commasIn(text) + 1;
    if (texts.length > 0 && (characters + text.length > MAX_CHARACTERS || values + count > MAX_VALUES)) {
      yield { objects, texts, from };
      [objects, texts, from, characters, values] = [[], [], index, 0, 0];
    }
    objects.push(object);
    texts.push(text);
    characters += text.length;
    values += count;
  }
  if (texts.length > 0) yield { objects, texts, from };
}

/** Returns about the number of values: each but the first of its list or object comes after a comma. */
function commasIn(text: string): number {
  let count = 0;
  for (let at = text.indexOf(','); at !== -1; at = text.indexOf(',', at + 1)) count += 1;
  return count;
}

/** Returns the object without its resource version, which is not stored. */
function unversioned(object: KubeObject): KubeObject {
  const { resourceVersion: _, ...metadata } = object.metadata;
  return { ...object, metadata };
}

/** Returns a converted object without the fields that the schema does not have and the nulls that it does not allow. */
function fitted(converted: KubeObject, schema: JsonSchema): KubeObject {
  const { value } = prune(converted as unknown as JsonObject, schema);
  dropNulls(value, schema);
  return value as unknown as KubeObject;
}

/**
 * Merges one converted object of the response into the object. Throws a 500 if the response has another version, kind, name,
 * namespace or UID, or invalid labels or annotations.
 */
function merged(
  object: KubeObject,
  next: KubeObject,
  { apiVersion, index, webhook }: { readonly apiVersion: string; readonly index: number; readonly webhook: string },
): KubeObject {
  const refuse = (why: string): Error => newErrorWithoutReason(`${webhook} returned invalid ${why}`);
  if (next.apiVersion !== apiVersion) {
    const why = `invalid groupVersion (expected ${apiVersion}, received ${next.apiVersion ?? ''})`;
    throw refuse(`object at index ${index}: ${why}`);
  }
  if (next.kind !== object.kind) {
    throw refuse(`object at index ${index}: invalid kind (expected ${object.kind ?? ''}, received ${next.kind ?? ''})`);
  }
  const returned: unknown = next.metadata;
  const metadata = isJsonObject(returned) ? returned : {};
  for (const name of ['name', 'namespace', 'uid'] as const) {
    const [before, after] = [object.metadata[name] ?? '', metadata[name] ?? ''];
    if (before !== after) {
      const shown = typeof after === 'string' ? after : stringifyJson(after);
      throw refuse(`object: must have the same ${name === 'uid' ? 'UID' : name}: ${before} != ${shown}`);
    }
  }
  if (!('metadata' in next)) throw refuse('metadata: missing metadata in converted object');
  const mergedMetadata = cloneJson(object.metadata);
  delete mergedMetadata.labels;
  delete mergedMetadata.annotations;
  for (const name of ['labels', 'annotations'] as const) {
    const texts = metadata[name] ?? {};
    // Typed clients could not decode the object, nor any list that contains it.
    if (!isJsonObject(texts))
      throw refuse(`metadata: invalid metadata.${name} of type ${goType(texts)} in converted object`);
    const wrong = Object.entries(texts).find(([, text]) => typeof text !== 'string');
    if (wrong !== undefined) {
      const why = `metadata.${name}[${wrong[0]}] must be a string, but is ${goType(wrong[1] as JsonValue)} in converted object`;
      throw refuse(`metadata: ${why}`);
    }
    const errors = jsonEqual(texts, object.metadata[name] ?? {}) ? [] : VALIDATE[name](texts as Texts);
    if (errors.length > 0) throw refuse(`metadata: ${aggregated(errors)}`);
    if (Object.keys(texts).length > 0) mergedMetadata[name] = texts as Texts;
  }
  return { ...next, metadata: mergedMetadata };
}

type Texts = Record<string, string>;

/** Validates labels and annotations. The paths in errors are those of kube-apiserver. */
const VALIDATE = {
  labels: (texts: Texts): FieldError[] => validateLabels(texts, 'metadata.labels'),
  annotations: (texts: Texts): FieldError[] => validateAnnotations(texts, 'metadata.annotation'),
};

/** Formats errors as Go's aggregate of errors does. */
function aggregated(errors: readonly FieldError[]): string {
  const texts = [...new Set(errors.map(String))];
  return texts.length === 1 ? (texts[0] ?? '') : `[${texts.join(', ')}]`;
}
