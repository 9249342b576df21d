/**
 * MutatingAdmissionWebhook and ValidatingAdmissionWebhook: configurations in the order of their names, mutating ones one
 * after another with one more round where that was asked for, validating ones all at once.
 */
import type { MutatingWebhookConfiguration, ValidatingWebhookConfiguration } from '../../../api/machinery/kinds.ts';
import {
  mutatingWebhookConfigurations,
  namespaces,
  services,
  validatingWebhookConfigurations,
} from '../../../api/machinery/resources.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import { applyJsonPatch } from '../../../api/codec/json-patch.ts';
import { jsonEqual } from '../../../api/meta/json-equality.ts';
import type { GroupVersionKind, GroupVersionResource, JsonValue, KubeObject } from '../../../api/meta/object.ts';
import { newInternalError } from '../../../api/meta/status-error.ts';
import type { WebhookClient } from '../../authentication/webhook-client.ts';
import type { AdmissionAttributes, AdmissionPlugin } from '../admission.ts';
import type { Source, Sources } from '../sources.ts';
import { Dispatcher, type DispatchOptions, type MatchConditions, type WebhookMetrics } from './dispatcher.ts';
import type { WebhookCredentials } from './endpoint.ts';
import { isExempt, isReview, matchWebhook, type RegisteredWebhook, type Webhook } from './matching.ts';
import { kindOfObject, viewOf } from '../policy/request-view.ts';
import type { ReviewView } from './review.ts';

/** The same resource in its other versions, and objects between them. */
export interface WebhookConversion {
  isNamespaced(resource: GroupVersionResource): boolean;
  equivalents(resource: GroupVersionResource, subresource: string): readonly GroupVersionResource[];
  kindOf(resource: GroupVersionResource, subresource: string): GroupVersionKind | undefined;
  /** Into the version of `kind`; throws where that cannot be done. Custom resources may ask a webhook of theirs. */
  convert(object: KubeObject, kind: GroupVersionKind): KubeObject | Promise<KubeObject>;
  /** A patched object in the form that its schema wants; throws for what does not fit. */
  conform?(object: KubeObject, kind: GroupVersionKind): KubeObject;
}

export interface WebhooksOptions {
  readonly sources: Sources;
  readonly client: WebhookClient;
  readonly clock: Clock;
  readonly conversion: WebhookConversion;
  readonly credentials?: WebhookCredentials;
  readonly matchConditions?: MatchConditions;
  readonly metrics?: WebhookMetrics;
  /** The built-in mutating plugins: they run again after a webhook changed something. */
  readonly reinvoke?: (attributes: AdmissionAttributes, signal: AbortSignal) => Promise<void>;
}

interface Match {
  readonly registered: RegisteredWebhook;
  readonly as: GroupVersionResource;
}

type Configuration = MutatingWebhookConfiguration | ValidatingWebhookConfiguration;

/** Webhooks sorted by the name of their configuration, flattened again only when one changes. */
class Registered {
  #list: readonly RegisteredWebhook[] | undefined;
  readonly #source: Source<Configuration>;

  constructor(source: Source<Configuration>) {
    this.#source = source;
    source.subscribe(() => (this.#list = undefined));
  }

  all(): readonly RegisteredWebhook[] {
    this.#list ??= [...this.#source.list()]
      .sort((a, b) => ((a.metadata.name ?? '') < (b.metadata.name ?? '') ? -1 : 1))
      .flatMap((one) =>
        (one.webhooks ?? []).map((webhook) => ({
          configuration: one.metadata.name ?? '',
          webhook: webhook as Webhook,
        })),
      );
    return this.#list;
  }
}

abstract class Plugin {
  protected readonly options: WebhooksOptions;
  protected readonly dispatcher: Dispatcher;
  readonly #registered: Registered;
  readonly #namespaces;

  constructor(type: 'admit' | 'validating', source: Source<Configuration>, options: WebhooksOptions) {
    this.options = options;
    this.#registered = new Registered(source);
    this.#namespaces = options.sources.of(namespaces);
    const { client, clock, credentials, matchConditions, metrics } = options;
    const dispatch: DispatchOptions = {
      client,
      services: options.sources.of(services),
      monotonic: () => clock.monotonic(),
      ...(credentials === undefined ? {} : { credentials }),
      ...(matchConditions === undefined ? {} : { matchConditions }),
      ...(metrics === undefined ? {} : { metrics }),
    };
    this.dispatcher = new Dispatcher(type, dispatch);
  }

  handles(): boolean {
    return true;
  }

  protected async matches(attributes: AdmissionAttributes): Promise<Match[]> {
    const all = this.#registered.all();
    if (all.length === 0 || isExempt(attributes) || isReview(attributes)) return [];
    const { conversion } = this.options;
    const input = {
      attributes,
      isNamespaced: conversion.isNamespaced(attributes.resource),
      namespaceLabels: await this.#namespaceLabels(attributes),
      equivalents: conversion.equivalents(attributes.resource, attributes.subresource),
    };
    return all.flatMap((registered) => {
      const as = matchWebhook(registered.webhook, input);
      return as === undefined ? [] : [{ registered, as }];
    });
  }

  async #namespaceLabels(attributes: AdmissionAttributes): Promise<Readonly<Record<string, string>> | undefined> {
    if (attributes.resource.group === '' && attributes.resource.resource === 'namespaces') {
      return (attributes.object ?? attributes.oldObject)?.metadata.labels ?? {};
    }
    const { namespace } = attributes;
    if (namespace === '') return undefined;
    const found = this.#namespaces.get('', namespace) ?? (await this.#namespaces.live('', namespace));
    return found?.metadata.labels ?? {};
  }
}

class ValidatingPlugin extends Plugin implements AdmissionPlugin {
  readonly name = 'ValidatingAdmissionWebhook';

  async validate(attributes: AdmissionAttributes, signal: AbortSignal): Promise<void> {
    const matches = await this.matches(attributes);
    if (matches.length === 0) return;
    const outcomes = await Promise.allSettled(
      matches.map(async ({ registered, as }) => {
        const view = await viewOf(attributes, as, this.options.conversion);
        if (this.dispatcher.conditionsMatch(registered, attributes, view))
          await this.dispatcher.call(registered, attributes, view, signal);
      }),
    );
    for (const outcome of outcomes) if (outcome.status === 'rejected') throw outcome.reason;
  }
}

class MutatingPlugin extends Plugin implements AdmissionPlugin {
  readonly name = 'MutatingAdmissionWebhook';

  async admit(attributes: AdmissionAttributes, signal: AbortSignal): Promise<void> {
    const matches = await this.matches(attributes);
    if (matches.length === 0) return;
    const again: Match[] = [];
    let order = 0;
    let anyChanged = false;
    for (const match of matches) {
      const changed = await this.#round(match, attributes, signal, 0, order);
      if (changed === undefined) continue;
      order++;
      if (changed) {
        // Whoever came before and wants to see what others changed is called once more.
        for (const earlier of matches.slice(0, matches.indexOf(match))) {
          if (earlier.registered.webhook.reinvocationPolicy === 'IfNeeded' && !again.includes(earlier))
            again.push(earlier);
        }
        anyChanged = true;
      }
    }
    if (!anyChanged) return;
    const before = structuredClone(attributes.object);
    await this.options.reinvoke?.(attributes, signal);
    if (!jsonEqual(before, attributes.object)) {
      for (const match of matches) {
        if (match.registered.webhook.reinvocationPolicy === 'IfNeeded' && !again.includes(match)) again.push(match);
      }
    }
    order = 0;
    for (const match of matches.filter((one) => again.includes(one))) {
      if ((await this.#round(match, attributes, signal, 1, order)) !== undefined) order++;
    }
  }

  /** Whether the webhook changed the object; `undefined`: it was not called. */
  async #round(
    { registered, as }: Match,
    attributes: AdmissionAttributes,
    signal: AbortSignal,
    round: number,
    order: number,
  ): Promise<boolean | undefined> {
    const view = await viewOf(attributes, as, this.options.conversion);
    if (!this.dispatcher.conditionsMatch(registered, attributes, view)) return undefined;
    const result = await this.dispatcher.call(registered, attributes, view, signal);
    if (result === undefined) return false;
    const { webhook, configuration } = registered;
    const key = `round_${round}_index_${order}`;
    let changed = false;
    if (result.patch !== undefined && view.object !== undefined) {
      const patched = this.#patched(webhook.name, view, result.patch);
      changed = !jsonEqual(patched.object, view.object);
      if (changed) {
        const own = attributes.object;
        const back =
          own === undefined || view.object === own
            ? patched.object
            : await this.options.conversion.convert(patched.object, kindOfObject(own, attributes.kind));
        attributes.setObject(back);
      }
      attributes.annotate(
        `patch.webhook.admission.k8s.io/${key}`,
        JSON.stringify({ configuration, webhook: webhook.name, patch: patched.patch, patchType: 'JSONPatch' }),
      );
    }
    attributes.annotate(
      `mutation.webhook.admission.k8s.io/${key}`,
      JSON.stringify({ configuration, webhook: webhook.name, mutated: changed }),
    );
    return changed;
  }

  #patched(name: string, view: ReviewView, bytes: Buffer): { readonly object: KubeObject; readonly patch: unknown } {
    let patch: unknown;
    try {
      patch = JSON.parse(bytes.toString('utf8'));
    } catch (error) {
      throw undecodable(name, 'unexpected end of JSON input', error);
    }
    if (!Array.isArray(patch))
      throw undecodable(
        name,
        `json: cannot unmarshal ${patch === null ? 'null' : typeof patch} into Go value of type jsonpatch.Patch`,
      );
    let object: KubeObject;
    try {
      object = applyJsonPatch(view.object as unknown as JsonValue, patch) as unknown as KubeObject;
      object = this.options.conversion.conform?.(object, view.kind) ?? object;
    } catch (error) {
      throw newInternalError(patchMessage(error, patch), error);
    }
    return { object, patch };
  }
}

/** Which operation failed and why: the client that made the patch is the webhook's author. */
function patchMessage(error: unknown, patch: readonly unknown[]): string {
  const inner = error instanceof Error && error.cause instanceof Error ? error.cause : error;
  const text = inner instanceof Error ? inner.message : String(inner);
  if (text.startsWith('testing value ')) return `${text}: test failed`;
  const key = /^Unable to remove nonexistent key: (.*)$/.exec(text)?.[1];
  if (key === undefined) return text;
  const paths = patch.flatMap((one) =>
    typeof one === 'object' && one !== null && 'path' in one && typeof one.path === 'string' ? [one.path] : [],
  );
  const path = paths.find((one) => one.endsWith(`/${key}`)) ?? key;
  return `error in remove for path: '${path}': ${text}: missing value`;
}

function undecodable(name: string, why: string, cause?: unknown): Error {
  return newInternalError(
    `failed calling webhook ${JSON.stringify(name)}: received undecodable patch in webhook response: ${why}`,
    cause,
  );
}

export function mutatingWebhooks(options: WebhooksOptions): AdmissionPlugin {
  return new MutatingPlugin(
    'admit',
    options.sources.of(mutatingWebhookConfigurations) as Source<Configuration>,
    options,
  );
}

export function validatingWebhooks(options: WebhooksOptions): AdmissionPlugin {
  return new ValidatingPlugin(
    'validating',
    options.sources.of(validatingWebhookConfigurations) as Source<Configuration>,
    options,
  );
}
