/** Authorizes the request. A refusal has kube-apiserver's message. */
import { newForbidden, newStatusError, type StatusError, isStatusError } from '../../../api/meta/status-error.ts';
import type {
  AuthorizationAttributes,
  Authorizer,
  Decision,
  SelectorRequirement,
} from '../../security/authorization/authorization.ts';
import { fieldRequirements, labelRequirements } from '../../security/authorization/selector-requirements.ts';
import { forbiddenMessage } from '../../security/authorization/union.ts';
import type { ApiRequest, Filter, Handler, MaybePromise } from '../request.ts';

/** Answers 403 unless the authorizer allows the request. Opening a stream by GET also needs the verb `create`. */
export function authorizationFilter(authorizer: Authorizer): Filter {
  return (request, next) => {
    const attributes = attributesOf(request);
    const decision = authorizer.authorize(attributes);
    const proceed: Handler = opensStream(request, attributes)
      ? (allowed) => alsoCreate(allowed, attributes, authorizer, next)
      : next;
    if (decision instanceof Promise) return decision.then((resolved) => decide(request, attributes, resolved, proceed));
    return decide(request, attributes, decision, proceed);
  };
}

const STREAMS: ReadonlySet<string> = new Set(['exec', 'attach', 'portforward']);

/**
 * Whether a request to read opens a stream. WebSocket clients open a stream with GET, but the permission to read must not
 * allow commands in a pod. The proxy to a node also reaches the streams of its agent, which sees only the identity of the API
 * server.
 */
function opensStream(
  { exchange }: ApiRequest,
  { verb, group, resource, subresource }: AuthorizationAttributes,
): boolean {
  if (verb !== 'get' || group !== '') return false;
  if (resource === 'nodes') return subresource === 'proxy' && exchange.canUpgrade;
  return resource === 'pods' && STREAMS.has(subresource);
}

async function alsoCreate(
  request: ApiRequest,
  attributes: AuthorizationAttributes,
  authorizer: Authorizer,
  next: Handler,
): Promise<void> {
  const creating = { ...attributes, verb: 'create' };
  const decision = await authorizer.authorize(creating);
  if (attributes.resource !== 'pods' || decision.decision === 'allow') return decide(request, creating, decision, next);
  // kube-apiserver refuses it where it opens the stream, with the reason of the authorizer alone.
  const { group, resource, name } = attributes;
  throw newForbidden({ group, resource }, name, decision.reason);
}

function decide(
  request: ApiRequest,
  attributes: AuthorizationAttributes,
  decision: Decision,
  next: Handler,
): MaybePromise<void> {
  const isAllowed = decision.decision === 'allow';
  if (request.audited !== undefined) {
    request.annotate('authorization.k8s.io/decision', isAllowed ? 'allow' : 'forbid');
    request.annotate('authorization.k8s.io/reason', decision.reason);
  }
  if (isAllowed) return next(request);
  request.forbidsSniffing = true;
  throw forbiddenError(attributes, decision.reason);
}

/** Returns the attributes of the request as authorizers see them. */
export function attributesOf(request: ApiRequest): AuthorizationAttributes {
  const { info, user } = request;
  const base = {
    user,
    verb: info.verb,
    isResourceRequest: info.isResource,
    group: info.group,
    version: info.version,
    resource: info.resource,
    subresource: info.subresource,
    namespace: info.namespace,
    name: info.name,
    path: info.path,
  };
  if (request.rawQuery === '' || !info.isResource || !SELECTING.has(info.verb)) return base;
  const labels = requirements(request.query.get('labelSelector'), labelRequirements);
  const fields = requirements(request.query.get('fieldSelector'), fieldRequirements);
  return {
    ...base,
    ...(labels === undefined ? {} : { labelSelector: labels }),
    ...(fields === undefined ? {} : { fieldSelector: fields }),
  };
}

const SELECTING: ReadonlySet<string> = new Set(['list', 'watch', 'deletecollection']);

/**
 * Returns the requirements of a selector for authorizers, or `undefined` if it is absent or cannot be parsed. The request
 * handler refuses a selector that cannot be parsed.
 */
function requirements(
  text: string | null,
  read: (text: string) => SelectorRequirement[],
): readonly SelectorRequirement[] | undefined {
  if (text === null || text === '') return undefined;
  try {
    return read(text);
  } catch (error) {
    if (isStatusError(error)) return undefined;
    throw error;
  }
}

/** Returns a 403. The reason of the authorizer follows the message. */
export function forbiddenError(attributes: AuthorizationAttributes, reason: string): StatusError {
  const sentence = forbiddenMessage(attributes);
  const why = reason === '' ? sentence : `${sentence}: ${reason}`;
  if (!attributes.isResourceRequest) {
    return newStatusError(403, 'Forbidden', `forbidden: ${why}`, { details: {} });
  }
  return newForbidden({ group: attributes.group, resource: attributes.resource }, attributes.name, why);
}
