/**
 * MutatingAdmissionWebhook: calls webhooks one after another, each with the changes of those before it. Those that ask for
 * reinvocation are called once more if the object was changed after them. Patches are JSON patches of the version that the
 * webhook registered for.
 */
import { stringifyJson } from '../../../../api/codec/json.ts';
import { errorMessage } from '../../../../api/meta/error-message.ts';
import { quoteText } from '../../../../api/meta/quote.ts';
import { applyJsonPatch, patchFailure } from '../../../../api/codec/json-patch.ts';
import { mutatingWebhookConfigurations } from '../../../../api/client/resources.ts';
import { jsonEqual } from '../../../../api/meta/json-equality.ts';
import type { JsonValue, KubeObject } from '../../../../api/meta/object.ts';
import { isStatusError, newInternalError } from '../../../../api/meta/status-error.ts';
import type { AdmissionAttributes, AdmissionPlugin } from '../admission.ts';
import { kindOfObject } from '../policy/request-view.ts';
import type { Lister } from '../../../model/listers.ts';
import type { RegisteredWebhook } from './matching.ts';
import type { JsonPatch, ReviewView } from './review.ts';
import { WebhookPlugin, type Configuration, type WebhooksOptions } from './webhooks.ts';

/** One round of calls for a request. The second round calls webhooks again. */
interface Round {
  readonly attributes: AdmissionAttributes;
  readonly signal: AbortSignal;
  readonly number: 0 | 1;
  readonly candidates: readonly RegisteredWebhook[];
}

class MutatingPlugin extends WebhookPlugin implements AdmissionPlugin {
  readonly name = 'MutatingAdmissionWebhook';

  async admit(attributes: AdmissionAttributes, signal: AbortSignal): Promise<void> {
    const candidates = this.candidates(attributes);
    if (candidates.length === 0) return;
    /** The webhooks that were already called and request reinvocation. */
    const waiting = new Set<RegisteredWebhook>();
    const again = new Set<RegisteredWebhook>();
    const callAgain = (): void => {
      for (const registered of waiting) again.add(registered);
      waiting.clear();
    };
    let isChanged = false;
    const called = (registered: RegisteredWebhook, changed: boolean): void => {
      if (changed) {
        isChanged = true;
        callAgain();
      }
      if (registered.webhook.reinvocationPolicy === 'IfNeeded') waiting.add(registered);
    };
    await this.#callAll({ attributes, signal, number: 0, candidates }, called);
    if (!isChanged) return;
    const before = structuredClone(attributes.object);
    await this.options.reinvoke?.(attributes, signal);
    if (!jsonEqual(before, attributes.object)) callAgain();
    if (again.size === 0) return;
    // A change of the second round also calls those again that have not had their turn yet.
    await this.#callAll({ attributes, signal, number: 1, candidates }, called, again);
  }

  /**
   * Calls the matching webhooks in order, or those of `only`. `called` is called after each webhook, with whether it changed
   * the object.
   */
  async #callAll(
    round: Round,
    called: (registered: RegisteredWebhook, changed: boolean) => void,
    only?: ReadonlySet<RegisteredWebhook>,
  ): Promise<void> {
    const { attributes } = round;
    const matchOf = await this.matcher(attributes);
    const views = this.views(attributes);
    for (const [index, registered] of round.candidates.entries()) {
      // An earlier webhook may have changed the labels that this one selects by.
      const match = only?.has(registered) === false ? undefined : matchOf(registered);
      if (match === undefined) continue;
      const view = await views.of(match.as);
      if (!(await this.dispatcher.conditionsMatch(registered, attributes, view))) continue;
      const changed = await this.#call(registered, view, round, `round_${round.number}_index_${index}`);
      if (changed) views.forget();
      called(registered, changed);
    }
  }

  /** Resolves to whether the webhook changed the object. */
  async #call(
    registered: RegisteredWebhook,
    view: ReviewView,
    { attributes, signal }: Round,
    place: string,
  ): Promise<boolean> {
    const { webhook, configuration } = registered;
    let mutated = false;
    try {
      await this.dispatcher.call({ registered, attributes, view, signal, place }, async ({ patch }) => {
        if (patch === undefined) return;
        mutated = await this.#apply(webhook.name, view, patch, attributes);
        const detail = { configuration, webhook: webhook.name, patch, patchType: 'JSONPatch' };
        attributes.annotate(`patch.webhook.admission.k8s.io/${place}`, stringifyJson(detail), 'Request');
      });
    } finally {
      const summary = { configuration, webhook: webhook.name, mutated };
      attributes.annotate(`mutation.webhook.admission.k8s.io/${place}`, stringifyJson(summary));
    }
    return mutated;
  }

  /**
   * Applies a patch, and resolves to whether it changed the object. Throws a 500 if the request has no object or the patch
   * cannot be applied, and the error of the conversion for a result that does not fit the kind.
   */
  async #apply(name: string, view: ReviewView, patch: JsonPatch, attributes: AdmissionAttributes): Promise<boolean> {
    const { conversion } = this.options;
    const { object } = attributes;
    if (view.object === undefined || object === undefined)
      throw newInternalError(
        `admission webhook ${quoteText(name)} attempted to modify the object, which is not supported for this operation`,
      );
    let patched: KubeObject;
    try {
      patched = applyJsonPatch(view.object as unknown as JsonValue, [...patch]) as unknown as KubeObject;
    } catch (error) {
      throw newInternalError(patchFailure(error), error);
    }
    try {
      patched = conversion.conform?.(patched, view.kind) ?? patched;
    } catch (error) {
      throw isStatusError(error) ? error : newInternalError(errorMessage(error), error);
    }
    if (jsonEqual(patched, view.object)) return false;
    const isSameKind = view.object.apiVersion === object.apiVersion && view.object.kind === object.kind;
    attributes.setObject(
      isSameKind ? patched : await conversion.convert(patched, kindOfObject(object, attributes.kind)),
    );
    return true;
  }
}

/** Builds the plugin, which has a mutating step alone. */
export function mutatingWebhooks(options: WebhooksOptions): AdmissionPlugin {
  return new MutatingPlugin(
    'admit',
    options.listers.of(mutatingWebhookConfigurations) as Lister<Configuration>,
    options,
  );
}
