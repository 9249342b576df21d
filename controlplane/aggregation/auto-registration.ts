/**
 * Maintains an APIService for each group and version of a CustomResourceDefinition, so that one list shows everything that is
 * served. It changes back and deletes only the APIServices that it created.
 *
 * One name is reconciled at a time, from the newest state of both informers; failures are retried.
 */
import type { Logger } from '../../api/component/logger.ts';
import type { Client } from '../../api/machinery/client.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import { apiServices } from '../../api/machinery/resources.ts';
import type { KubeObject } from '../../api/meta/object.ts';
import { isAlreadyExists, isConflict, isNotFound } from '../../api/meta/status-error.ts';
import type { Source } from '../readers/sources.ts';

export interface AutoRegistrationOptions {
  readonly definitions: Source;
  readonly services: Source;
  readonly client: Client;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly signal: AbortSignal;
}

interface Definition extends KubeObject {
  readonly spec?: {
    readonly group?: string;
    readonly versions?: readonly { readonly name?: string; readonly served?: boolean }[];
  };
}

interface ApiService extends KubeObject {
  readonly spec?: {
    readonly groupPriorityMinimum?: number;
    readonly versionPriority?: number;
    readonly service?: object;
  };
}

const MANAGED = 'kube-aggregator.kubernetes.io/automanaged';
const RETRY_MS = 1000;
/** The group sorts after all built-in ones; versions are ordered by their names. */
const PRIORITIES = { groupPriorityMinimum: 1000, versionPriority: 100 };

export function startAutoRegistration(options: AutoRegistrationOptions): void {
  const { definitions, services, clock, logger, signal } = options;
  const working = new Map<string, { again: boolean }>();

  async function work(name: string, state: { again: boolean }): Promise<void> {
    do {
      state.again = false;
      await sync(name, options);
    } while (state.again && !signal.aborted);
  }

  function wake(name: string): void {
    const state = working.get(name);
    if (state !== undefined) {
      state.again = true;
      return;
    }
    const fresh = { again: false };
    working.set(name, fresh);
    work(name, fresh)
      .catch((error: unknown) => {
        if (signal.aborted) return;
        const expected = isConflict(error) || isNotFound(error) || isAlreadyExists(error);
        if (!expected) logger.warn({ err: error, apiService: name }, 'An API service could not be kept');
        clock.after(RETRY_MS, () => {
          if (!signal.aborted) wake(name);
        });
      })
      .finally(() => working.delete(name));
  }

  definitions.subscribe(({ current, previous }) => {
    for (const name of new Set([...namesOf(current), ...namesOf(previous)])) wake(name);
  });
  services.subscribe(({ current, previous }) => {
    const { name = '', labels } = (current ?? previous)?.metadata ?? {};
    if (labels?.[MANAGED] === 'true') wake(name);
  });
}

function namesOf(definition: Definition | undefined): string[] {
  const { group = '', versions = [] } = definition?.spec ?? {};
  return versions.map(({ name = '' }) => `${name}.${group}`);
}

async function sync(name: string, { definitions, services, client }: AutoRegistrationOptions): Promise<void> {
  const dot = name.indexOf('.');
  const [version, group] = [name.slice(0, dot), name.slice(dot + 1)];
  const isServed = definitions.list().some((one) => {
    const { spec } = one as Definition;
    return spec?.group === group && spec.versions?.some((served) => served.name === version && served.served === true);
  });
  const current = services.get('', name) as ApiService | undefined;
  if (current === undefined) {
    if (!isServed) return;
    await client.create(apiServices, '', {
      apiVersion: 'apiregistration.k8s.io/v1',
      kind: 'APIService',
      metadata: { name, labels: { [MANAGED]: 'true' } },
      spec: { group, version, ...PRIORITIES },
    });
    return;
  }
  if (current.metadata.labels?.[MANAGED] !== 'true') return;
  if (!isServed) {
    await client.delete(apiServices, '', name, { preconditions: { uid: current.metadata.uid ?? '' } });
    return;
  }
  const { groupPriorityMinimum, versionPriority, service } = current.spec ?? {};
  const isRight = groupPriorityMinimum === 1000 && versionPriority === 100 && service === undefined;
  if (!isRight) await client.update(apiServices, { ...current, spec: { group, version, ...PRIORITIES } });
}
