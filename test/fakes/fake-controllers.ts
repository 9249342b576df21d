/** Runs controllers on the fake API in virtual time, and provides the functions that their tests share. */
import { parseFlags } from '../../api/component/flags.ts';
import { silentLogger } from '../../api/component/logger.ts';
import { CoreEventRecorder } from '../../api/client/event-recorder.ts';
import { Informers } from '../../api/client/informer.ts';
import type { Resource } from '../../api/client/client.ts';
import * as resources from '../../api/client/resources.ts';
import { typedClient } from '../../api/client/typed-client.ts';
import type { KubeObject } from '../../api/meta/object.ts';
import type { RunController } from '../../controlplane/controllers/controller.ts';
import type { ControllerOptions } from '../../controlplane/controllers/controller-options.ts';
import { controllerOptions, controllersFlags } from '../../controlplane/options/controllers.ts';
import type { ResourceCatalog } from '../../controlplane/model/rest.ts';
import type { ResourceInfo } from '../../api/schema/schema.ts';
import { FakeClient } from './fake-client.ts';
import { FakeClock } from './fake-clock.ts';

/** The options of a control plane without flags, where nodes get no ranges of pod addresses. */
const DEFAULT_OPTIONS: ControllerOptions = {
  ...controllerOptions(parseFlags(controllersFlags, []).values),
  clusterCidrs: [],
};

const VERBS = ['create', 'delete', 'deletecollection', 'get', 'list', 'patch', 'update', 'watch'];

function infoOf({ group, version, resource, kind, namespaced }: Resource): ResourceInfo {
  return {
    group,
    version,
    resource,
    kind,
    namespaced,
    singular: kind.toLowerCase(),
    shortNames: [],
    categories: [],
    verbs: VERBS,
    subresources: [],
  };
}

export interface ControllerTest {
  readonly clock: FakeClock;
  readonly client: FakeClient;
  /** Notifies the controllers of a change of the catalog. */
  changeCatalog(): void;
  /** The number of reads of the catalog's resources. */
  catalogReads(): number;
  /** The reasons and messages of the recorded events. */
  events(): string[];
  /** Starts controllers. `stop` stops them. */
  start(...controllers: RunController[]): Promise<void>;
  /** Advances the time, and lets everything settle. */
  advance(ms: number): Promise<void>;
  stop(): Promise<void>;
}

/** Prepares controllers over a fake API with these objects. `served` are the resources of its catalog. */
export function controllerTest(
  options: {
    readonly objects?: readonly (readonly [Resource, KubeObject])[];
    readonly served?: readonly Resource[];
    readonly options?: Partial<ControllerOptions>;
  } = {},
): ControllerTest {
  const clock = new FakeClock();
  const client = new FakeClient(clock, options.objects ?? []);
  const informers = new Informers({ client, clock, logger: silentLogger, watchList: false });
  const stop = new AbortController();
  const running: Promise<void>[] = [];
  const served = options.served ?? [resources.pods, resources.replicaSets, resources.deployments, resources.configMaps];
  const listeners: (() => void)[] = [];
  let catalogReads = 0;
  const catalog: ResourceCatalog = {
    find: () => undefined,
    resources() {
      catalogReads += 1;
      return served.map(infoOf);
    },
    onChange(listener) {
      listeners.push(listener);
      return () => void listeners.splice(listeners.indexOf(listener), 1);
    },
  };
  return {
    clock,
    client,
    changeCatalog: () => listeners.forEach((listener) => listener()),
    catalogReads: () => catalogReads,
    events: () =>
      client
        .peekAll(resources.events)
        .map(
          (event) =>
            `${event.type} ${event.reason} ${event.message}${(event.count ?? 1) > 1 ? ` x${event.count}` : ''}`,
        ),
    async start(...controllers) {
      for (const run of controllers) {
        const recorder = new CoreEventRecorder({ client, clock, logger: silentLogger, component: 'test' });
        const environment = {
          name: 'test',
          client: typedClient(client),
          informers,
          recorder,
          clock,
          logger: silentLogger,
          catalog,
          options: { ...DEFAULT_OPTIONS, ...options.options },
        };
        running.push(run(environment, stop.signal));
      }
      await clock.advance(20);
    },
    advance: (ms) => clock.advance(ms),
    async stop() {
      stop.abort(new Error('the test is over'));
      await Promise.all(running);
      await informers.close();
    },
  };
}
