/**
 * Converts between versions of a custom resource by the webhook of its definition. Of the metadata in the response, only labels
 * and annotations are used.
 */
import { quoteText } from '../../api/meta/quote.ts';
import { randomUUID } from 'node:crypto';
import { stringifyJson } from '../../api/codec/json.ts';
import { cloneJson } from '../../api/meta/json-equality.ts';
import { goType } from '../../api/meta/go-text.ts';
import { isJsonObject } from '../../api/meta/json-object.ts';
import { apiVersionOf, type JsonObject, type JsonValue, type KubeObject } from '../../api/meta/object.ts';
import { validateLabels } from '../../api/meta/selector.ts';
import { newStatusError } from '../../api/meta/status-error.ts';
import { checkReviewKind } from '../admission/webhook/webhook-answer.ts';
import type { Conversion } from '../registry/strategy.ts';
import type { WebhookClientConfig } from './definition.ts';
import type { VersionSchema } from './version-conversion.ts';

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

/** `base` converts the objects to the schemas of the versions after the webhook has converted them. */
export function webhookConversion(
  { group, kind, config, reviewVersions, call }: WebhookConversionOptions,
  versions: { readonly stored: VersionSchema; readonly served: VersionSchema },
  base: (from: VersionSchema, to: VersionSchema) => Conversion,
): Conversion {
  const { stored, served } = versions;
  const same = base(stored, stored);
  const shown = base(served, served);
  const review = reviewVersions.find((version) => SUPPORTED.includes(version)) ?? 'v1';

  async function ask(objects: readonly KubeObject[], version: string): Promise<KubeObject[]> {
    const desiredAPIVersion = apiVersionOf({ group, version });
    const webhook = `conversion webhook for ${objects[0]?.apiVersion ?? ''}, Kind=${kind}`;
    const fail = (why: string): Error => newStatusError(500, '', `${webhook} failed: ${why}`);
    const uid = randomUUID();
    const body = {
      kind: 'ConversionReview',
      apiVersion: `${GROUP}/${review}`,
      request: { uid, desiredAPIVersion, objects },
      // Kubernetes encodes the empty response as well.
      response: { uid: '', convertedObjects: null, result: { metadata: {} } },
    };
    let answer: unknown;
    try {
      answer = await call(config, stringifyJson(body));
      checkReviewKind(isJsonObject(answer) ? answer : {}, { group: GROUP, version: review, kind: 'ConversionReview' });
    } catch (error) {
      throw fail(error instanceof Error ? error.message : String(error));
    }
    const response =
      isJsonObject(answer) && isJsonObject(answer['response']) ? (answer['response'] as ConversionResponse) : undefined;
    if (response === undefined) throw fail('no response provided');
    if (response.uid !== uid)
      throw fail(`expected response.uid=${quoteText(uid)}, got ${quoteText(response.uid ?? '')}`);
    const { status = '', message = '' } = response.result ?? {};
    if (status !== 'Success') {
      throw fail(message === '' ? `response.result.status was '${status}', not 'Success'` : message);
    }
    const converted = response.convertedObjects ?? [];
    if (converted.length !== objects.length) {
      throw newStatusError(500, '', `${webhook} returned ${converted.length} objects, expected ${objects.length}`);
    }
    return objects.map((object, index) =>
      taken(object, converted[index] ?? {}, { apiVersion: desiredAPIVersion, index, webhook }),
    );
  }

  return {
    ...same,
    async convertAll(objects, to) {
      if (to === 'stored') {
        const asked = stored.name === served.name ? objects : await ask(objects, stored.name);
        return asked.map((object) => same.fromStored(cloneJson(object)));
      }
      // Objects may have been stored in a previous storage version.
      const wanted = apiVersionOf({ group, version: served.name });
      const others = objects.filter(({ apiVersion }) => apiVersion !== wanted).map((object) => cloneJson(object));
      const asked = others.length === 0 ? [] : await ask(others, served.name);
      let next = 0;
      return objects.map((object) => {
        const found = object.apiVersion === wanted ? object : (asked[next++] ?? object);
        return shown.isServed?.(found) === true ? found : shown.fromStored(cloneJson(found));
      });
    },
  };
}

/** Merges the response into the object. The identity of the object does not change. */
function taken(
  object: KubeObject,
  converted: JsonObject,
  { apiVersion, index, webhook }: { readonly apiVersion: string; readonly index: number; readonly webhook: string },
): KubeObject {
  const refuse = (why: string): Error => newStatusError(500, '', `${webhook} returned invalid ${why}`);
  const next = converted as unknown as KubeObject;
  if (next.apiVersion !== apiVersion) {
    const why = `invalid groupVersion (expected ${apiVersion}, received ${next.apiVersion ?? ''})`;
    throw refuse(`object at index ${index}: ${why}`);
  }
  if (next.kind !== object.kind) {
    throw refuse(`object at index ${index}: invalid kind (expected ${object.kind ?? ''}, received ${next.kind ?? ''})`);
  }
  const metadata: unknown = next.metadata ?? {};
  if (!isJsonObject(metadata)) throw refuse('metadata: it is not an object');
  for (const name of ['name', 'namespace', 'uid'] as const) {
    const [before, after] = [object.metadata[name] ?? '', metadata[name] ?? ''];
    if (before !== after) {
      const shown = typeof after === 'string' ? after : stringifyJson(after);
      throw refuse(`object: must have the same ${name === 'uid' ? 'UID' : name}: ${before} != ${shown}`);
    }
  }
  if (!('metadata' in next)) throw refuse('metadata: missing metadata in converted object');
  const kept = cloneJson(object.metadata);
  delete kept.labels;
  delete kept.annotations;
  for (const name of ['labels', 'annotations'] as const) {
    const texts = metadata[name] ?? {};
    // Typed clients could not decode the object, nor any list that contains it.
    if (!isJsonObject(texts)) throw refuse(`metadata: metadata.${name} is not a map`);
    const wrong = Object.entries(texts).find(([, text]) => typeof text !== 'string');
    if (wrong !== undefined) {
      const why = `metadata.${name}[${wrong[0]}] must be a string, but is ${goType(wrong[1] as JsonValue)} in converted object`;
      throw refuse(`metadata: ${why}`);
    }
    if (Object.keys(texts).length > 0) kept[name] = texts as Record<string, string>;
  }
  const [error] = validateLabels(kept.labels, 'metadata.labels');
  if (error !== undefined) throw refuse(`metadata: ${String(error)}`);
  return { ...next, metadata: kept };
}

interface ConversionResponse {
  readonly uid?: string;
  readonly result?: { readonly status?: string; readonly message?: string };
  readonly convertedObjects?: readonly JsonObject[];
}
