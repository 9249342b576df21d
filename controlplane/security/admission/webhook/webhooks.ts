/**
 * Implements what the webhook admission plugins share: the configurations in the order of their names, the selection of
 * webhooks, and the conversion of the request. It also has the plugin ValidatingAdmissionWebhook.
 */
import type { MutatingWebhookConfiguration, ValidatingWebhookConfiguration } from '../../../../api/kinds/kinds.ts';
import {
  endpointSlices,
  namespaces,
  services,
  validatingWebhookConfigurations,
} from '../../../../api/client/resources.ts';
import type { Clock } from '../../../../api/machinery/clock.ts';
import type { GroupVersionResource } from '../../../../api/meta/object.ts';
import type { WebhookClient } from '../../webhooks/webhook-client.ts';
import type { AdmissionAttributes, AdmissionPlugin } from '../admission.ts';
import type { Lister, Listers } from '../../../model/listers.ts';
import { Dispatcher, type DispatchOptions, type MatchConditions, type WebhookMetrics } from './dispatcher.ts';
import type { WebhookCredentials } from './endpoint.ts';
import { isExempt, matchWebhook, type RegisteredWebhook, type Webhook } from './matching.ts';
import { viewOf, type VersionConversion } from '../policy/request-view.ts';
import type { ReviewView } from './review.ts';
import { isResource } from '../../../../api/meta/group-resource.ts';

/** What both plugins need; `mutatingWebhooks` alone uses `reinvoke`. */
export interface WebhooksOptions {
  readonly listers: Listers;
  readonly client: WebhookClient;
  /** Returns a number from 0 up to 1, which picks one of the addresses of a service. */
  readonly random: () => number;
  readonly clock: Clock;
  readonly conversion: VersionConversion;
  readonly credentials?: WebhookCredentials;
  readonly matchConditions?: MatchConditions;
  readonly metrics?: WebhookMetrics;
  /** Runs the mutating plugins before the webhooks again, after a webhook changed the object. */
  readonly reinvoke?: (attributes: AdmissionAttributes, signal: AbortSignal) => Promise<void>;
}

/** A webhook configuration of either plugin. */
export type Configuration = MutatingWebhookConfiguration | ValidatingWebhookConfiguration;

/** Webhooks sorted by the name of their configuration, flattened again only when one changes. */
class Registered {
  #list: readonly RegisteredWebhook[] | undefined;
  readonly #lister: Lister<Configuration>;

  constructor(lister: Lister<Configuration>) {
    this.#lister = lister;
    lister.subscribe(() => (this.#list = undefined));
  }

  all(): readonly RegisteredWebhook[] {
    this.#list ??= [...this.#lister.list()]
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

interface Match {
  readonly registered: RegisteredWebhook;
  readonly as: GroupVersionResource;
}

/** A request in the versions that webhooks registered for. Each conversion is cached until the object changes. */
class Views {
  readonly #views = new Map<string, Promise<ReviewView>>();
  readonly #attributes: AdmissionAttributes;
  readonly #conversion: VersionConversion;

  constructor(attributes: AdmissionAttributes, conversion: VersionConversion) {
    this.#attributes = attributes;
    this.#conversion = conversion;
  }

  of(as: GroupVersionResource): Promise<ReviewView> {
    const key = `${as.group}/${as.version}/${as.resource}`;
    let view = this.#views.get(key);
    if (view === undefined) this.#views.set(key, (view = viewOf(this.#attributes, as, this.#conversion)));
    return view;
  }

  /** Forgets the converted object. Must be called when the object has changed. */
  forget(): void {
    this.#views.clear();
  }
}

/** Selects the webhooks of a request and converts its object; subclasses decide in which order they are called. */
export abstract class WebhookPlugin {
  protected readonly options: WebhooksOptions;
  protected readonly dispatcher: Dispatcher;
  readonly #registered: Registered;
  readonly #namespaces;

  constructor(type: 'admit' | 'validating', lister: Lister<Configuration>, options: WebhooksOptions) {
    this.options = options;
    this.#registered = new Registered(lister);
    this.#namespaces = options.listers.of(namespaces);
    const { client, clock, credentials, matchConditions, metrics, random } = options;
    const dispatch: DispatchOptions = {
      client,
      random,
      services: options.listers.of(services),
      endpointSlices: options.listers.of(endpointSlices),
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

  /** Returns the webhooks that may match the request: all registered ones, or none if the request is exempt from webhooks. */
  protected candidates(attributes: AdmissionAttributes): readonly RegisteredWebhook[] {
    const all = this.#registered.all();
    return all.length === 0 || isExempt(attributes) ? [] : all;
  }

  protected views(attributes: AdmissionAttributes): Views {
    return new Views(attributes, this.options.conversion);
  }

  /** Reads the labels and versions that webhooks select by, and resolves to the function that matches one webhook. */
  protected async matcher(
    attributes: AdmissionAttributes,
  ): Promise<(registered: RegisteredWebhook) => Match | undefined> {
    const { conversion } = this.options;
    const input = {
      attributes,
      isNamespaced: conversion.isNamespaced(attributes.resource),
      namespaceLabels: await this.#namespaceLabels(attributes),
      equivalents: conversion.equivalents(attributes.resource, attributes.subresource),
    };
    return (registered) => {
      const as = matchWebhook(registered.webhook, input);
      return as === undefined ? undefined : { registered, as };
    };
  }

  async #namespaceLabels(attributes: AdmissionAttributes): Promise<Readonly<Record<string, string>> | undefined> {
    if (isResource(attributes.resource, namespaces)) {
      return (attributes.object ?? attributes.oldObject)?.metadata.labels ?? {};
    }
    const { namespace } = attributes;
    if (namespace === '') return undefined;
    const found = this.#namespaces.get('', namespace) ?? (await this.#namespaces.live('', namespace));
    return found?.metadata.labels ?? {};
  }
}

class ValidatingPlugin extends WebhookPlugin implements AdmissionPlugin {
  readonly name = 'ValidatingAdmissionWebhook';

  async validate(attributes: AdmissionAttributes, signal: AbortSignal): Promise<void> {
    const candidates = this.candidates(attributes);
    if (candidates.length === 0) return;
    const matchOf = await this.matcher(attributes);
    const matches = candidates.flatMap((registered) => matchOf(registered) ?? []);
    const views = this.views(attributes);
    // A match condition that fails can refuse the request before any webhook is called.
    const relevant = [];
    for (const { registered, as } of matches) {
      const view = await views.of(as);
      if (await this.dispatcher.conditionsMatch(registered, attributes, view)) relevant.push({ registered, view });
    }
    const outcomes = await Promise.allSettled(
      relevant.map(({ registered, view }, index) =>
        this.dispatcher.call({ registered, attributes, view, signal, place: `round_0_index_${index}` }),
      ),
    );
    for (const outcome of outcomes) if (outcome.status === 'rejected') throw outcome.reason;
  }
}

/** Creates the plugin ValidatingAdmissionWebhook, which calls all matching webhooks in parallel. */
export function validatingWebhooks(options: WebhooksOptions): AdmissionPlugin {
  return new ValidatingPlugin(
    'validating',
    options.listers.of(validatingWebhookConfigurations) as Lister<Configuration>,
    options,
  );
}
