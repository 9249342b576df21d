/** Defines the parameters of the API's operations: name, place, type and description. */
import { parameterText } from '../../../api/schema/parameter-texts.ts';

/** A parameter of an operation. */
export interface ParameterInfo {
  readonly name: string;
  readonly in: 'query' | 'path';
  readonly type: 'string' | 'boolean' | 'integer';
  /** Reads the text on first use. */
  readonly description: () => string;
}

/** Returns a parameter. Its description is that of the parameter of the same name of `operation`, one of the core group. */
function parameter(
  place: ParameterInfo['in'],
  name: string,
  type: ParameterInfo['type'],
  operation: string,
): ParameterInfo {
  return { name, in: place, type, description: () => parameterText(operation, name) };
}

type Parameters = Readonly<Record<string, ParameterInfo['type']>>;

const queries = (operation: string, parameters: Parameters): ParameterInfo[] =>
  Object.entries(parameters).map(([name, type]) => parameter('query', name, type, operation));

const WRITES: Parameters = { dryRun: 'string', fieldManager: 'string', fieldValidation: 'string' };

/** The parameters of lists and watches. */
export const LIST_PARAMETERS: readonly ParameterInfo[] = queries('listNamespacedPod', {
  allowWatchBookmarks: 'boolean',
  continue: 'string',
  fieldSelector: 'string',
  labelSelector: 'string',
  limit: 'integer',
  resourceVersion: 'string',
  resourceVersionMatch: 'string',
  sendInitialEvents: 'boolean',
  shardSelector: 'string',
  timeoutSeconds: 'integer',
  watch: 'boolean',
});

/** The query of create and update. */
export const WRITE_PARAMETERS: readonly ParameterInfo[] = queries('createNamespacedPod', WRITES);
/** The query of patch. The description of its `fieldManager` says that apply requires one. */
export const PATCH_PARAMETERS: readonly ParameterInfo[] = queries('patchNamespacedPod', {
  ...WRITES,
  force: 'boolean',
});
/** The query of delete. */
export const DELETE_PARAMETERS: readonly ParameterInfo[] = queries('deleteNamespacedPod', {
  dryRun: 'string',
  gracePeriodSeconds: 'integer',
  ignoreStoreReadErrorWithClusterBreakingPotential: 'boolean',
  orphanDependents: 'boolean',
  propagationPolicy: 'string',
});
/** The query of deletecollection: the parameters of delete, and those of list, by which the objects are selected. */
export const DELETE_COLLECTION_PARAMETERS: readonly ParameterInfo[] = [
  ...DELETE_PARAMETERS,
  ...LIST_PARAMETERS.filter(({ name }) => name !== 'watch' && name !== 'allowWatchBookmarks'),
];

/** The parameters of reads. kube-apiserver lists them for custom resources only. */
export const READ_PARAMETERS = LIST_PARAMETERS.filter(({ name }) => name === 'resourceVersion');

/** The query that all operations on objects take. */
export const COMMON_PARAMETERS: readonly ParameterInfo[] = queries('listNamespacedPod', { pretty: 'string' });

/** The namespace in the path. */
export const NAMESPACE: ParameterInfo = parameter('path', 'namespace', 'string', 'listNamespacedPod');

/** Returns the name of an object of this kind in the path. */
export function nameParameter(kind: string): ParameterInfo {
  return { name: 'name', in: 'path', type: 'string', description: () => `name of the ${kind}` };
}

/** The rest of the path of a proxy. */
export const PROXY_PATH: ParameterInfo = parameter('path', 'path', 'string', 'connectGetNodeProxyWithPath');

const STREAMS: Parameters = { stderr: 'boolean', stdin: 'boolean', stdout: 'boolean', tty: 'boolean' };

/** The parameters of subresources that stream or that have their own options. */
export const SUBRESOURCE_PARAMETERS: ReadonlyMap<string, readonly ParameterInfo[]> = new Map(
  Object.entries({
    'pods/attach': queries('connectGetNamespacedPodAttach', { container: 'string', ...STREAMS }),
    'pods/exec': queries('connectGetNamespacedPodExec', { command: 'string', container: 'string', ...STREAMS }),
    'pods/portforward': queries('connectGetNamespacedPodPortforward', { ports: 'integer' }),
    'pods/log': queries('readNamespacedPodLog', {
      container: 'string',
      follow: 'boolean',
      insecureSkipTLSVerifyBackend: 'boolean',
      limitBytes: 'integer',
      previous: 'boolean',
      sinceSeconds: 'integer',
      stream: 'string',
      tailLines: 'integer',
      timestamps: 'boolean',
    }),
    'nodes/proxy': queries('connectGetNodeProxy', { path: 'string' }),
    'pods/proxy': queries('connectGetNamespacedPodProxy', { path: 'string' }),
    'services/proxy': queries('connectGetNamespacedServiceProxy', { path: 'string' }),
  }),
);
