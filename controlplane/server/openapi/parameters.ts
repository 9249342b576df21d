/** Defines the parameters of the API's operations: name, place, type and description. */

export interface ParameterInfo {
  readonly name: string;
  readonly in: 'query' | 'path';
  readonly type: 'string' | 'boolean' | 'integer';
  readonly description: string;
}

function query(name: string, type: ParameterInfo['type'], description: string): ParameterInfo {
  return { name, in: 'query', type, description };
}

const PRETTY = query('pretty', 'string', "If 'true', the output is indented for reading.");
const DRY_RUN = query(
  'dryRun',
  'string',
  "'All' runs every stage of the request without storing its result. Other values are refused.",
);
const FIELD_MANAGER = query(
  'fieldManager',
  'string',
  'The name of the client that makes the change, with at most 128 printable characters. Required for apply.',
);
const FIELD_VALIDATION = query(
  'fieldValidation',
  'string',
  "How unknown and duplicate fields are handled: 'Ignore' drops them, 'Warn' drops them and warns of each, 'Strict' refuses the request.",
);
const FORCE = query(
  'force',
  'boolean',
  'Apply takes over fields that other managers own. Must not be set for other patches.',
);

/** The parameters of lists and watches. */
export const LIST_PARAMETERS: readonly ParameterInfo[] = [
  query(
    'allowWatchBookmarks',
    'boolean',
    'The watch may send events of type BOOKMARK, which contain only a resource version.',
  ),
  query('continue', 'string', 'The continue token of the previous page. The other parameters must be the same.'),
  query('fieldSelector', 'string', 'Restricts the objects by their fields. Empty selects all.'),
  query('labelSelector', 'string', 'Restricts the objects by their labels. Empty selects all.'),
  query(
    'limit',
    'integer',
    'The maximum number of objects in a response. The response to a longer list has a continue token.',
  ),
  query('resourceVersion', 'string', 'Which versions may be served; see resourceVersionMatch.'),
  query('resourceVersionMatch', 'string', "How resourceVersion applies to a list: 'NotOlderThan' or 'Exact'."),
  query(
    'sendInitialEvents',
    'boolean',
    'The watch begins with an event for each existing object, and then sends a bookmark.',
  ),
  query('shardSelector', 'string', 'Restricts the objects to those of a shard.'),
  query('timeoutSeconds', 'integer', 'The maximum duration of a list or watch.'),
  query('watch', 'boolean', 'Returns a stream of changes instead of a list.'),
];

export const WRITE_PARAMETERS: readonly ParameterInfo[] = [DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION];
export const PATCH_PARAMETERS: readonly ParameterInfo[] = [DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION, FORCE];
export const DELETE_PARAMETERS: readonly ParameterInfo[] = [
  DRY_RUN,
  query(
    'gracePeriodSeconds',
    'integer',
    'The seconds before the object is deleted. Zero deletes it at once. Without it, the default of its kind applies.',
  ),
  query(
    'ignoreStoreReadErrorWithClusterBreakingPotential',
    'boolean',
    'Deletes an object that cannot be read from the store, without its finalizers.',
  ),
  query('orphanDependents', 'boolean', 'Deprecated: use propagationPolicy.'),
  query('propagationPolicy', 'string', "What happens to dependents: 'Orphan', 'Background' or 'Foreground'."),
];
export const DELETE_COLLECTION_PARAMETERS: readonly ParameterInfo[] = [
  ...DELETE_PARAMETERS,
  ...LIST_PARAMETERS.filter(({ name }) => name !== 'watch' && name !== 'allowWatchBookmarks'),
];

/** kube-apiserver lists a parameter of reads for custom resources only. */
export const READ_PARAMETERS = LIST_PARAMETERS.filter(({ name }) => name === 'resourceVersion');

export const COMMON_PARAMETERS: readonly ParameterInfo[] = [PRETTY];

export const NAMESPACE: ParameterInfo = {
  name: 'namespace',
  in: 'path',
  type: 'string',
  description: 'The namespace of the object.',
};

export function nameParameter(kind: string): ParameterInfo {
  return { name: 'name', in: 'path', type: 'string', description: `name of the ${kind}` };
}

export const PROXY_PATH: ParameterInfo = {
  name: 'path',
  in: 'path',
  type: 'string',
  description: 'The path behind the resource.',
};

const COMMAND = query('command', 'string', 'The command and its arguments, one a parameter.');
const CONTAINER = query('container', 'string', 'The container; the only one of the pod if absent.');
const STREAMS = [
  query('stderr', 'boolean', 'Pass on standard error.'),
  query('stdin', 'boolean', 'Pass on standard input.'),
  query('stdout', 'boolean', 'Pass on standard output.'),
  query('tty', 'boolean', 'Allocate a terminal.'),
];

/** The parameters of subresources that stream or that have their own options. */
export const SUBRESOURCE_PARAMETERS: ReadonlyMap<string, readonly ParameterInfo[]> = new Map(
  Object.entries({
    'pods/attach': [CONTAINER, ...STREAMS],
    'pods/exec': [COMMAND, CONTAINER, ...STREAMS],
    'pods/portforward': [query('ports', 'integer', 'The ports to forward; required over WebSockets.')],
    'pods/log': [
      CONTAINER,
      query('follow', 'boolean', 'Goes on with what is written later.'),
      query('insecureSkipTLSVerifyBackend', 'boolean', "Does not check the agent's certificate."),
      query('limitBytes', 'integer', 'Ends after so many bytes.'),
      query('previous', 'boolean', 'The log of the container before its last restart.'),
      query('sinceSeconds', 'integer', 'Begins so many seconds ago.'),
      query('stream', 'string', "'All', 'Stdout' or 'Stderr'."),
      query('tailLines', 'integer', 'Begins so many lines before the end.'),
      query('timestamps', 'boolean', 'Puts a time before each line.'),
    ],
    proxy: [query('path', 'string', 'The path behind the resource.')],
  }),
);
