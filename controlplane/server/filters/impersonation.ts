/**
 * Implements impersonation by `Impersonate-*` headers.
 *
 * The mode by which the caller last succeeded is tried first, and then the others: the constrained modes, each of which needs
 * `impersonate-on:<mode>:<verb>` on the request itself and `impersonate:<mode>` on the requested user, and the legacy verb
 * `impersonate`. A refusal has the message of the first mode that was tried.
 */
import { stringifyJson } from '../../../api/codec/json.ts';
import { domainPrefixedPathErrors, dnsSubdomainErrors } from '../../../api/meta/names.ts';
import { quoteText } from '../../../api/meta/quote.ts';
import { newBadRequest } from '../../../api/meta/status-error.ts';
import type { UserInfo } from '../../model/user-info.ts';
import { headerValues } from '../../security/authentication/header-values.ts';
import type { AuthorizationAttributes, Authorizer } from '../../security/authorization/authorization.ts';
import type { Exchange } from '../exchange.ts';
import type { ApiRequest, Filter, Handler } from '../request.ts';
import { attributesOf, forbiddenError } from './authorization.ts';
import {
  ANONYMOUS_USER,
  AUTHENTICATED_GROUP,
  MASTERS_GROUP,
  NODES_GROUP,
  NODE_USER_PREFIX,
  UNAUTHENTICATED_GROUP,
  NODE_NAME_EXTRA,
} from '../../../api/meta/system-users.ts';

const USER_HEADER = 'impersonate-user';
const GROUP_HEADER = 'impersonate-group';
const UID_HEADER = 'impersonate-uid';
const EXTRA_PREFIX = 'impersonate-extra-';
const SERVICE_ACCOUNT = /^system:serviceaccount:([^:]+):([^:]+)$/;
const LETTER_I = 0x69;
/** The bit in which small letters differ from capitals. */
const LOWER_CASE = 0x20;
const NODE_GROUPS: readonly string[] = [NODES_GROUP];
const AUTHENTICATION_GROUP = 'authentication.k8s.io';
/** The number of callers whose last mode is remembered. The oldest is dropped. */
const REMEMBERED_CALLERS = 1024;

interface Wanted {
  readonly name: string;
  readonly uid: string;
  readonly groups: readonly string[];
  readonly extra: ReadonlyMap<string, readonly string[]>;
}

interface Check {
  readonly group: string;
  readonly resource: string;
  readonly subresource?: string;
  readonly namespace?: string;
  readonly name: string;
  /** Why nobody may have the part, whatever the permissions of the caller are. */
  readonly fault?: string;
}

interface Mode {
  /** Empty for the legacy verb. */
  readonly name: string;
  /** The groups of a user that is impersonated by this mode without naming groups, in addition to the default ones. */
  readonly groups?: readonly string[];
  /** Returns the permissions that the caller needs, or `undefined` if the mode does not apply. */
  checks(wanted: Wanted, caller: UserInfo): readonly Check[] | undefined;
}

const MODES: readonly Mode[] = [
  {
    name: 'associated-node',
    groups: NODE_GROUPS,
    checks(wanted, caller) {
      const node = nodeOf(wanted);
      // Only the token of a pod's service account proves the node; extra fields of other users can come from anywhere.
      if (node === undefined || accountOf(caller.name) === undefined) return undefined;
      const [associated, ...others] = caller.extra?.[NODE_NAME_EXTRA] ?? [];
      if (associated !== node || others.length > 0) return undefined;
      return [{ group: AUTHENTICATION_GROUP, resource: 'nodes', name: '*' }];
    },
  },
  {
    name: 'arbitrary-node',
    groups: NODE_GROUPS,
    checks(wanted) {
      const node = nodeOf(wanted);
      return node === undefined ? undefined : [{ group: AUTHENTICATION_GROUP, resource: 'nodes', name: node }];
    },
  },
  {
    name: 'serviceaccount',
    checks(wanted) {
      const account = accountOf(wanted.name);
      if (account === undefined || !isBare(wanted)) return undefined;
      return [{ group: AUTHENTICATION_GROUP, resource: 'serviceaccounts', ...account }];
    },
  },
  {
    name: 'user-info',
    checks(wanted) {
      if (accountOf(wanted.name) !== undefined || nodeNameIn(wanted.name) !== undefined) return undefined;
      return [
        { group: AUTHENTICATION_GROUP, resource: 'users', name: wanted.name },
        ...uidChecks(wanted),
        ...groupFaults(wanted),
        ...groupChecks(wanted, AUTHENTICATION_GROUP),
        ...extraFaults(wanted),
        ...extraChecks(wanted),
      ];
    },
  },
  {
    name: '',
    checks(wanted) {
      const account = accountOf(wanted.name);
      const who =
        account === undefined
          ? { group: '', resource: 'users', name: wanted.name }
          : { group: '', resource: 'serviceaccounts', ...account };
      return [who, ...uidChecks(wanted), ...groupChecks(wanted, ''), ...extraChecks(wanted)];
    },
  },
];

function uidChecks({ uid }: Wanted): readonly Check[] {
  return uid === '' ? [] : [{ group: AUTHENTICATION_GROUP, resource: 'uids', name: uid }];
}

function groupChecks({ groups }: Wanted, group: string): readonly Check[] {
  return groups.map((name) => ({ group, resource: 'groups', name }));
}

function extraChecks({ extra }: Wanted): readonly Check[] {
  return [...extra].flatMap(([subresource, values]) =>
    values.map((name) => ({ group: AUTHENTICATION_GROUP, resource: 'userextras', subresource, name })),
  );
}

/** Returns the check that fails if a request has groups that the constrained modes never grant. */
function groupFaults({ groups }: Wanted): readonly Check[] {
  const fault = (name: string, what: string): readonly Check[] => [
    { group: AUTHENTICATION_GROUP, resource: 'groups', name, fault: `impersonating the ${what} is not allowed` },
  ];
  if (groups.includes('')) return fault('', 'empty string group');
  return groups.includes(MASTERS_GROUP) ? fault(MASTERS_GROUP, `${MASTERS_GROUP} group`) : [];
}

/** Returns the check that fails if a request has extra fields that the constrained modes never grant. */
function extraFaults({ extra }: Wanted): readonly Check[] {
  for (const [key, values] of extra) {
    const what = extraFault(key, values);
    if (what === undefined) continue;
    const fault = `impersonating ${what}`;
    return [{ group: AUTHENTICATION_GROUP, resource: 'userextras', name: '', fault }];
  }
  return [];
}

function extraFault(key: string, values: readonly string[]): string | undefined {
  if (key === '') return 'the empty string key in extra is not allowed';
  const [error] = domainPrefixedPathErrors('extra.key', key);
  if (error !== undefined) return `an invalid key in extra is not allowed: ${error.toString()}`;
  if (key !== key.toLowerCase()) return `a non-lowercase key in extra is not allowed: ${quoteText(key)}`;
  if (values.length === 0) return 'empty values in extra is not allowed';
  return values.includes('') ? 'the empty string value in extra is not allowed' : undefined;
}

const isBare = (wanted: Wanted): boolean => wanted.groups.length === 0 && wanted.uid === '' && wanted.extra.size === 0;

function nodeOf(wanted: Wanted): string | undefined {
  return isBare(wanted) ? nodeNameIn(wanted.name) : undefined;
}

/** Returns `undefined` if the name is not that of a node's user. */
function nodeNameIn(user: string): string | undefined {
  const name = user.slice(NODE_USER_PREFIX.length);
  return user.startsWith(NODE_USER_PREFIX) && dnsSubdomainErrors(name).length === 0 ? name : undefined;
}

function accountOf(name: string): { namespace: string; name: string } | undefined {
  const match = SERVICE_ACCOUNT.exec(name);
  const [, namespace = '', account = ''] = match ?? [];
  if (match === null || !/^[a-z0-9]([-a-z0-9]*[a-z0-9])?$/.test(namespace)) return undefined;
  return /^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$/.test(account) ? { namespace, name: account } : undefined;
}

/**
 * Replaces the user of the request. Throws a 403 if the client may not impersonate that user, and a 400 if the headers name no
 * user.
 */
export function impersonationFilter(authorizer: Authorizer): Filter {
  const lastModes = new Map<string, Mode>();
  const impersonate = async (request: ApiRequest, wanted: Wanted, next: Handler): Promise<void> => {
    await replaceUser(request, wanted, authorizer, lastModes);
    await next(request);
  };
  return (request, next) => {
    if (!mentionsImpersonation(request.exchange)) return next(request);
    const wanted = readHeaders(request);
    return wanted === undefined ? next(request) : impersonate(request, wanted, next);
  };
}

async function replaceUser(
  request: ApiRequest,
  wanted: Wanted,
  authorizer: Authorizer,
  lastModes: Map<string, Mode>,
): Promise<void> {
  const caller = request.user;
  const key = stringifyJson([caller.name, caller.uid, caller.groups, caller.extra]);
  const last = lastModes.get(key);
  const order = last === undefined ? MODES : [last, ...MODES.filter((mode) => mode !== last)];
  let refusal: Error | undefined;
  for (const mode of order) {
    const checks = mode.checks(wanted, caller);
    if (checks === undefined) continue;
    const error = await refusalOf(request, mode, checks, authorizer);
    if (error === undefined) {
      remember(lastModes, key, mode);
      request.impersonator = caller;
      request.user = userOf(wanted, mode.groups ?? []);
      return;
    }
    refusal ??= error;
  }
  request.forbidsSniffing = true;
  throw refusal ?? newBadRequest('nobody to impersonate');
}

function remember(lastModes: Map<string, Mode>, key: string, mode: Mode): void {
  lastModes.delete(key);
  lastModes.set(key, mode);
  for (const oldest of lastModes.keys()) {
    if (lastModes.size <= REMEMBERED_CALLERS) break;
    lastModes.delete(oldest);
  }
}

async function refusalOf(
  request: ApiRequest,
  mode: Mode,
  checks: readonly Check[],
  authorizer: Authorizer,
): Promise<Error | undefined> {
  const requested = attributesOf(request);
  const verb = mode.name === '' ? 'impersonate' : `impersonate:${mode.name}`;
  const refusal = async (attributes: AuthorizationAttributes): Promise<Error | undefined> => {
    const { decision, reason } = await authorizer.authorize(attributes);
    return decision === 'allow' ? undefined : forbiddenError(attributes, reason);
  };
  if (mode.name !== '') {
    const error = await refusal({ ...requested, verb: `impersonate-on:${mode.name}:${requested.verb}` });
    if (error !== undefined) return error;
  }
  for (const { group, resource, subresource = '', namespace = '', name, fault } of checks) {
    const user = { user: request.user, verb, isResourceRequest: true, version: 'v1', path: requested.path };
    const attributes: AuthorizationAttributes = { ...user, group, resource, subresource, namespace, name };
    const error = fault === undefined ? await refusal(attributes) : forbiddenError(attributes, fault);
    if (error !== undefined) return error;
  }
  return undefined;
}

/** Whether the request may have headers of impersonation. */
function mentionsImpersonation({ rawHeaders }: Exchange): boolean {
  if (rawHeaders === undefined) return true;
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = rawHeaders[at] ?? '';
    if ((name.charCodeAt(0) | LOWER_CASE) === LETTER_I && /^impersonate-/i.test(name)) return true;
  }
  return false;
}

/** Returns `undefined` without impersonation. Throws a 400 if headers of a user are present without its name. */
function readHeaders(request: ApiRequest): Wanted | undefined {
  const { headers } = request.exchange;
  const [name = ''] = headerValues(request.exchange, USER_HEADER);
  const groups = headerValues(request.exchange, GROUP_HEADER);
  const [uid = ''] = headerValues(request.exchange, UID_HEADER);
  let extra: Map<string, string[]> | undefined;
  for (const header in headers) {
    if (!header.startsWith(EXTRA_PREFIX)) continue;
    extra ??= new Map();
    const key = unescapeKey(header.slice(EXTRA_PREFIX.length));
    extra.set(key, [...(extra.get(key) ?? []), ...headerValues(request.exchange, header)]);
  }
  if (name !== '') return { name, uid, groups, extra: extra ?? new Map() };
  if (groups.length === 0 && uid === '' && extra === undefined) return undefined;
  request.forbidsSniffing = true;
  throw newBadRequest(`requested ${describe(uid, groups, extra ?? new Map())} without impersonating a user name`);
}

/**
 * Decodes a key of the extra fields. Keys are percent-encoded if a header name cannot contain them. An invalid encoding is
 * kept unchanged.
 */
function unescapeKey(key: string): string {
  try {
    return decodeURIComponent(key);
  } catch (error) {
    if (error instanceof URIError) return key;
    throw error;
  }
}

/** Formats the user as kube-apiserver does in its message. */
function describe(uid: string, groups: readonly string[], extra: ReadonlyMap<string, readonly string[]>): string {
  const list = (values: readonly string[]): string => `[]string{${values.map((value) => quoteText(value)).join(', ')}}`;
  const groupText = groups.length === 0 ? '[]string(nil)' : list(groups);
  const pairs = [...extra].map(([key, values]) => `${quoteText(key)}:${list(values)}`);
  const extraText = pairs.length === 0 ? 'map[string][]string(nil)' : `map[string][]string{${pairs.join(', ')}}`;
  return `&user.DefaultInfo{Name:"", UID:${quoteText(uid)}, Groups:${groupText}, Extra:${extraText}}`;
}

function userOf(wanted: Wanted, modeGroups: readonly string[]): UserInfo {
  return {
    name: wanted.name,
    groups: groupsOf(wanted, modeGroups),
    ...(wanted.uid === '' ? {} : { uid: wanted.uid }),
    ...(wanted.extra.size === 0 ? {} : { extra: Object.fromEntries(wanted.extra) }),
  };
}

function groupsOf(wanted: Wanted, modeGroups: readonly string[]): readonly string[] {
  let groups = [...wanted.groups, ...modeGroups];
  const account = accountOf(wanted.name);
  if (account !== undefined && groups.length === 0) {
    groups = ['system:serviceaccounts', `system:serviceaccounts:${account.namespace}`];
  }
  if (wanted.name === ANONYMOUS_USER) {
    return groups.includes(UNAUTHENTICATED_GROUP) ? groups : [...groups, UNAUTHENTICATED_GROUP];
  }
  const hasGroup = groups.includes(AUTHENTICATED_GROUP) || groups.includes(UNAUTHENTICATED_GROUP);
  return hasGroup ? groups : [...groups, AUTHENTICATED_GROUP];
}
