/** Runs the strategy of a kind on an object like the store does around a write, without a store. */
import type { FieldError } from '../../../../../api/meta/field-error.ts';
import type { KubeObject } from '../../../../../api/meta/object.ts';
import { builtinResources } from '../../../../../api/schema/resources.ts';
import type { KindRow, Strategy, StrategyContext } from '../../../../../controlplane/registry/strategy.ts';

const NOW_MS = Date.parse('2024-05-06T07:08:09Z');

/** An object as a test writes it. */
export type Draft = Record<string, unknown> & { metadata?: Record<string, unknown> };

/** Returns the strategy of a resource. Throws if the rows have none. */
export function strategyOf(rows: readonly KindRow[], resource: string): Strategy {
  const row = rows.find((one) => one.resource === resource);
  if (row === undefined) throw new Error(`no rules for ${resource}`);
  return row.strategy;
}

/** Returns the context of a write of the resource. */
export function contextFor(group: string, resource: string): StrategyContext {
  const info = builtinResources().find((one) => one.group === group && one.resource === resource);
  if (info === undefined) throw new Error(`no resource ${resource} in group "${group}"`);
  return {
    info,
    namespace: 'ns',
    dryRun: false,
    nowMs: NOW_MS,
    request: {
      user: { name: 'somebody', groups: [] },
      signal: new AbortController().signal,
      fieldManager: 'test',
      userAgent: 'test',
      warn: () => undefined,
      annotate: () => undefined,
      may: () => Promise.resolve(true),
    },
  };
}

const whole = (draft: Draft): KubeObject =>
  structuredClone({ ...draft, metadata: { name: 'x', namespace: 'ns', ...draft.metadata } }) as unknown as KubeObject;

export interface Ruled {
  readonly object: KubeObject;
  /** Each error as `field: text`. */
  readonly errors: readonly string[];
  readonly warnings: readonly string[];
}

/**
 * Returns the strategy of one resource; `group` is that of the path. With a subresource, `update` is an update of the
 * subresource.
 */
export function rulesOf(rows: readonly KindRow[], group: string, resource: string, subresource?: string) {
  const strategy = strategyOf(rows, resource);
  const inner = subresource === 'status' ? strategy.status : strategy.subresources?.[subresource ?? ''];
  const updates = subresource === undefined ? strategy : inner;
  if (updates === undefined) throw new Error(`no rules for ${resource}/${subresource ?? ''}`);
  const context = contextFor(group, resource);
  const made = (draft: Draft): KubeObject => {
    const object = whole(draft);
    strategy.applyDefaults?.(object);
    return object;
  };
  return {
    create(draft: Draft): Ruled {
      const object = made(draft);
      strategy.prepareForCreate?.(object, context);
      return {
        object,
        errors: shown(strategy.validateCreate?.(object, context)),
        warnings: strategy.warningsOnCreate?.(object, context) ?? [],
      };
    },
    update(before: Draft, after: Draft): Ruled & { readonly newGeneration: boolean } {
      const old = made(before);
      const object = made(after);
      updates.prepareForUpdate?.(object, old, context);
      return {
        object,
        newGeneration: updates.changesGeneration?.(object, old) === true,
        errors: shown(updates.validateUpdate?.(object, old, context)),
        warnings: updates.warningsOnUpdate?.(object, old, context) ?? [],
      };
    },
  };
}

/** Returns the errors as texts. Throws for a promise, because the strategies of built-in kinds are synchronous. */
export function shown(errors: FieldError[] | Promise<FieldError[]> = []): string[] {
  if (errors instanceof Promise) throw new Error('the strategy answers later');
  return errors.map(String);
}
