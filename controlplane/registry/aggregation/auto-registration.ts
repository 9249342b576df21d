/**
 * Maintains an APIService for each group and version of a CustomResourceDefinition, so that one list shows everything that is
 * served. It changes back and deletes only the APIServices with the label of those that it created.
 */
import type { Logger } from '../../../api/component/logger.ts';
import { background } from '../../../api/machinery/background.ts';
import type { Client } from '../../../api/client/client.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import { apiServices } from '../../../api/client/resources.ts';
import { runWorkers, WorkQueue } from '../../../api/machinery/work-queue.ts';
import type { KubeObject } from '../../../api/meta/object.ts';
import { isAlreadyExists, isConflict, isNotFound } from '../../../api/meta/status-error.ts';
import type { Lister } from '../../model/listers.ts';

/** The signal stops the workers. */
export interface AutoRegistrationOptions {
  readonly definitions: Lister;
  readonly services: Lister;
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
const RETRY = { baseDelayMs: 100, maxDelayMs: 30_000 };
/** Writes of several names share a commit. */
const WORKERS = 10;
/** The group sorts after all built-in ones; versions are ordered by their names. */
const PRIORITIES = { groupPriorityMinimum: 1000, versionPriority: 100 };

/**
 * Creates, updates and deletes the APIServices of CustomResourceDefinitions in the background until the signal of the options
 * aborts. Returns at once.
 */
export function startAutoRegistration(options: AutoRegistrationOptions): void {
  const { definitions, services, clock, logger, signal } = options;
  const queue = new WorkQueue({ clock, ...RETRY });
  const workers = runWorkers({
    queue,
    workers: WORKERS,
    signal,
    reconcile: (name) => sync(name, options),
    onError: (error, name) => {
      const expected = isConflict(error) || isNotFound(error) || isAlreadyExists(error);
      if (!expected) logger.warn({ err: error, apiService: name }, 'An APIService could not be updated');
    },
  });
  background(workers, { logger, what: 'Maintaining the APIServices', signal });
  definitions.subscribe(({ current, previous }) => {
    for (const name of new Set([...namesOf(current), ...namesOf(previous)])) queue.add(name);
  });
  services.subscribe(({ current, previous }) => {
    const { name = '', labels } = (current ?? previous)?.metadata ?? {};
    if (labels?.[MANAGED] === 'true') queue.add(name);
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
  const isUnchanged =
    groupPriorityMinimum === PRIORITIES.groupPriorityMinimum &&
    versionPriority === PRIORITIES.versionPriority &&
    service === undefined;
  if (!isUnchanged) await client.update(apiServices, { ...current, spec: { group, version, ...PRIORITIES } });
}
