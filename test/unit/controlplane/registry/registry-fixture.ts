/** Builds a registry with memory storage, with a short notation for requests. */
import { silentLogger } from '../../../../api/component/logger.ts';
import { systemClock } from '../../../../api/machinery/clock.ts';
import { everyField, parseFieldSelector } from '../../../../api/meta/field-selector.ts';
import { cloneJson } from '../../../../api/meta/json-equality.ts';
import type { KubeObject } from '../../../../api/meta/object.ts';
import { parseSelector } from '../../../../api/meta/selector-parser.ts';
import { everything } from '../../../../api/meta/selector.ts';
import { StatusError } from '../../../../api/meta/status-error.ts';
import { loadSchema } from '../../../../api/schema/table.ts';
import { openRegistry, type Registry } from '../../../../controlplane/registry/registry.ts';
import { serveRegistry } from '../../../../controlplane/registry/served-rests.ts';
import type {
  DeleteOptions,
  Deleted,
  ListOptions,
  Patch,
  RequestContext,
  Rest,
} from '../../../../controlplane/model/rest.ts';
import { openMemoryStorage } from '../../../../controlplane/storage/memory.ts';
import { stampRevision } from '../../../../controlplane/storage/object-bytes.ts';
import type { Storage } from '../../../../controlplane/storage/storage.ts';
import { noFieldManagement } from '../../../fakes/no-field-management.ts';

export interface WriteMode {
  readonly dryRun?: boolean;
}

export interface Fixture {
  readonly registry: Registry;
  readonly warnings: string[];
  rest(group: string, version: string, resource: string, subresource?: string): Rest;
  /** The path is `apps/v1/deployments` or `v1/pods`, with a subresource after a colon. */
  create(path: string, object: object, namespace?: string, options?: WriteMode): Promise<KubeObject>;
  update(path: string, object: object, namespace?: string, options?: WriteMode): Promise<KubeObject>;
  patch(path: string, name: string, patch: Patch, namespace?: string, options?: WriteMode): Promise<KubeObject>;
  get(path: string, name: string, namespace?: string): Promise<KubeObject>;
  list(
    path: string,
    options?: Partial<Omit<ListOptions, 'labelSelector' | 'fieldSelector'>> & { labels?: string; fields?: string },
    namespace?: string,
  ): Promise<Awaited<ReturnType<NonNullable<Rest['list']>>>>;
  delete(path: string, name: string, options?: Partial<DeleteOptions>, namespace?: string): Promise<Deleted>;
  close(): Promise<void>;
}

type ServedOptions = Parameters<typeof serveRegistry>[1];

const NAMESPACE = 'default';

const NO_ADMISSION: ServedOptions['admission'] = {
  admit: async () => undefined,
  validate: async () => undefined,
  beforeWrite: () => undefined,
};

/** Opens a registry that serves all built-in resources, by default in memory and without admission. */
export async function openFixture(
  storage: Storage = openMemoryStorage({ clock: systemClock, stamp: stampRevision }),
  serviceClusterCidrs: readonly string[] = ['10.96.0.0/16'],
  fieldManagement: ServedOptions['fieldManagement'] = () => noFieldManagement,
  admission: ServedOptions['admission'] = NO_ADMISSION,
): Promise<Fixture> {
  const schema = loadSchema();
  const registry = await openRegistry({
    storage,
    schema,
    clock: systemClock,
    logger: silentLogger,
    serviceClusterCidrs,
    serviceNodePorts: { from: 30000, to: 30100 },
    eventTtlMs: 3_600_000,
    freeze: true,
  });
  serveRegistry(registry, {
    schema,
    admission,
    fieldManagement,
  });
  const warnings: string[] = [];
  const context: RequestContext = {
    user: { name: 'tester', groups: [] },
    signal: new AbortController().signal,
    fieldManager: 'test',
    userAgent: 'test/1',
    warn: (text) => void warnings.push(text),
    annotate: () => undefined,
    may: async () => true,
  };
  const persisted = { dryRun: false, fieldValidation: 'Warn' } as const;
  const rest = (group: string, version: string, resource: string, subresource = ''): Rest => {
    const found = registry.catalog.find(group, version, resource, subresource);
    if (found === undefined) throw new Error(`${group}/${version}/${resource}/${subresource} is not served`);
    return found;
  };
  const at = (path: string): Rest => {
    const [main = '', subresource = ''] = path.split(':');
    const parts = main.split('/');
    const resource = parts.pop() ?? '';
    const version = parts.pop() ?? '';
    return rest(parts.pop() ?? '', version, resource, subresource);
  };
  const scope = (one: Rest, namespace: string): string => (one.info.namespaced ? namespace : '');
  function verb<Name extends keyof Rest>(one: Rest, name: Name): NonNullable<Rest[Name]> {
    const found = one[name];
    if (found === undefined || found === null) throw new Error(`no ${name} of ${one.info.resource}`);
    return found as NonNullable<Rest[Name]>;
  }
  return {
    registry,
    warnings,
    rest,
    async create(path, object, namespace = NAMESPACE, options = {}) {
      const write = { ...persisted, ...options };
      const one = at(path);
      const body = { value: cloneJson(object), duplicates: [] };
      const name = path.includes(':') ? ((object as KubeObject).metadata.name ?? '') : '';
      const created = await verb(one, 'create')(context, scope(one, namespace), name, body, write);
      return ('entry' in created ? created.entry : created).object;
    },
    async update(path, object, namespace = NAMESPACE, options = {}) {
      const write = { ...persisted, ...options };
      const one = at(path);
      const name = (object as KubeObject).metadata.name ?? '';
      const body = { value: cloneJson(object), duplicates: [] };
      return (await verb(one, 'update')(context, scope(one, namespace), name, body, write)).entry.object;
    },
    async patch(path, name, patch, namespace = NAMESPACE, options = {}) {
      const write = { ...persisted, ...options };
      const one = at(path);
      return (await verb(one, 'patch')(context, scope(one, namespace), name, patch, write)).entry.object;
    },
    async get(path, name, namespace = NAMESPACE) {
      const one = at(path);
      return (await verb(one, 'get')(context, scope(one, namespace), name, { resourceVersion: '' })).object;
    },
    async list(path, options = {}, namespace = NAMESPACE) {
      const one = at(path);
      const { labels, fields, ...others } = options;
      return await verb(one, 'list')(context, scope(one, namespace), {
        labelSelector: labels === undefined ? everything : parseSelector(labels),
        fieldSelector: fields === undefined ? everyField : parseFieldSelector(fields),
        resourceVersion: '',
        resourceVersionMatch: '',
        limit: 0,
        continue: '',
        ...others,
      });
    },
    async delete(path, name, options = {}, namespace = NAMESPACE) {
      const one = at(path);
      return await verb(one, 'delete')(context, scope(one, namespace), name, {
        dryRun: false,
        gracePeriodSeconds: undefined,
        propagationPolicy: '',
        orphanDependents: undefined,
        preconditions: undefined,
        ...options,
      });
    },
    async close() {
      registry.close();
      await storage.close();
    },
  };
}

/** Resolves to the error of a refused call. */
export async function refusal(call: Promise<unknown>): Promise<StatusError> {
  try {
    await call;
  } catch (error) {
    if (error instanceof StatusError) return error;
    throw error;
  }
  throw new Error('nothing was refused');
}
