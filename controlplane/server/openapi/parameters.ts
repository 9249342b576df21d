/** The parameters of the API's operations: name, place, type and what they are for, in our words. */

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
  "'All' runs every stage of the request without keeping its outcome. Other values are refused.",
);
const FIELD_MANAGER = query(
  'fieldManager',
  'string',
  'Who makes the change: at most 128 printable characters. Required for apply.',
);
const FIELD_VALIDATION = query(
  'fieldValidation',
  'string',
  "What happens to unknown and repeated fields: 'Ignore' drops them, 'Warn' drops them and warns of each, 'Strict' refuses the request.",
);
const FORCE = query(
  'force',
  'boolean',
  'Apply takes over fields that other managers own. Must not be set for other patches.',
);

/** Of lists and watches. */
export const LIST_PARAMETERS: readonly ParameterInfo[] = [
  query(
    'allowWatchBookmarks',
    'boolean',
    'A watch may send events of type BOOKMARK, which carry a resource version only.',
  ),
  query(
    'continue',
    'string',
    'The token of a previous page, to go on after it. The other parameters must be the same.',
  ),
  query('fieldSelector', 'string', 'Restricts the objects by their fields. Empty selects all.'),
  query('labelSelector', 'string', 'Restricts the objects by their labels. Empty selects all.'),
  query('limit', 'integer', 'The largest number of objects in one answer; a longer list has a token to go on with.'),
  query('resourceVersion', 'string', 'Which versions may be served; see resourceVersionMatch.'),
  query('resourceVersionMatch', 'string', "How resourceVersion applies to a list: 'NotOlderThan' or 'Exact'."),
  query('sendInitialEvents', 'boolean', 'A watch begins with an event for each object that is there, then a bookmark.'),
  query('timeoutSeconds', 'integer', 'How long a list or watch may take, whatever happens in it.'),
  query('watch', 'boolean', 'Answers with a stream of changes instead of a list.'),
];

export const WRITE_PARAMETERS: readonly ParameterInfo[] = [DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION];
export const PATCH_PARAMETERS: readonly ParameterInfo[] = [DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION, FORCE];
export const DELETE_PARAMETERS: readonly ParameterInfo[] = [
  DRY_RUN,
  query(
    'gracePeriodSeconds',
    'integer',
    'How long the object may take to end. Zero ends it at once, absent takes the default of its kind.',
  ),
  query(
    'ignoreStoreReadErrorWithClusterBreakingPotential',
    'boolean',
    'Deletes an object that cannot be read from the store, without its finalizers.',
  ),
  query('orphanDependents', 'boolean', 'Deprecated: use propagationPolicy.'),
  query('propagationPolicy', 'string', "What happens to dependents: 'Orphan', 'Background' or 'Foreground'."),
];
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

/** Of subresources that are connected to, or read with options of their own. */
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
