/** Implements TokenRequest: issues a token of a service account, bound to an object on request. */
import { tokenLifetimeErrors } from '../../../api/kinds/token-lifetime.ts';
import { quoteText } from '../../../api/meta/quote.ts';
import { formatTime, type Clock } from '../../../api/machinery/clock.ts';
import type { Node, Pod, Secret } from '../../../api/kinds/kinds.ts';
import { nodes, pods, secrets, serviceAccounts } from '../../../api/client/resources.ts';
import { invalid } from '../../../api/meta/field-error.ts';
import { parseApiVersion, type KubeObject } from '../../../api/meta/object.ts';
import { newBadRequest, newConflict, newInvalid, newNotFound } from '../../../api/meta/status-error.ts';
import type { Listers } from '../../model/listers.ts';
import {
  EXTENDED_EXPIRATION_SECONDS,
  WARN_ONLY_EXPIRATION_SECONDS,
  type ObjectIdentity,
  type TokenIssuer,
} from '../../security/authentication/token-issuer.ts';
import type { Reviewer } from './review-rest.ts';

/** How tokens are issued, by the flags `--service-account-*`. */
interface TokenRequestOptions {
  readonly clock: Clock;
  readonly listers: Listers;
  readonly issuer: TokenIssuer;
  readonly apiAudiences: readonly string[];
  readonly extendExpiration: boolean;
  readonly maxExpirationSeconds: number;
}

interface BoundObjectReference {
  readonly kind?: string;
  readonly apiVersion?: string;
  readonly name?: string;
  readonly uid?: string;
}

interface Spec {
  audiences?: string[] | null;
  expirationSeconds?: number;
  boundObjectRef?: BoundObjectReference | null;
}

const KIND = { group: 'authentication.k8s.io', resource: 'TokenRequest' };
/** The default of `spec.expirationSeconds`. */
const DEFAULT_SECONDS = 3600;

/** Sets the defaults of a TokenRequest. The expiration is an hour if the client asks for none. */
export function tokenRequestDefaults(object: KubeObject): void {
  const spec = (object['spec'] ??= {}) as Spec;
  spec.expirationSeconds ??= DEFAULT_SECONDS;
}

/**
 * Implements the subresource `token` of service accounts. Throws kube-apiserver's errors for a request that cannot be granted.
 */
export function tokenRequester(options: TokenRequestOptions): Reviewer {
  const accounts = options.listers.of(serviceAccounts);
  return async ({ object, namespace, name, context }) => {
    checkName(object, name);
    const account = await accounts.live(namespace, name);
    if (account === undefined) throw newNotFound({ group: '', resource: 'serviceaccounts' }, name);
    const uid = account.metadata.uid ?? '';
    checkUid(object, name, uid);
    Object.assign(object.metadata, { name, namespace, uid });
    const spec = (object['spec'] ?? {}) as Spec;
    const audiences =
      spec.audiences === undefined || spec.audiences === null || spec.audiences.length === 0
        ? [...options.apiAudiences]
        : spec.audiences;
    let seconds = spec.expirationSeconds ?? DEFAULT_SECONDS;
    checkLifetime(seconds);
    const bound = await boundObject(options.listers, namespace, name, spec.boundObjectRef ?? undefined);
    const { maxExpirationSeconds } = options;
    if (maxExpirationSeconds > 0 && seconds > maxExpirationSeconds) {
      context.warn(`requested expiration of ${seconds} seconds shortened to ${maxExpirationSeconds} seconds`);
      seconds = maxExpirationSeconds;
    }
    const isExtended =
      options.extendExpiration &&
      bound.pod !== undefined &&
      seconds === WARN_ONLY_EXPIRATION_SECONDS &&
      audiences.length > 0 &&
      audiences.every((audience) => options.apiAudiences.includes(audience));
    const { token, id, issuedAtSeconds } = options.issuer.issue({
      namespace,
      account: { name, uid },
      ...bound,
      audiences,
      expirationSeconds: isExtended ? EXTENDED_EXPIRATION_SECONDS : seconds,
      ...(isExtended ? { warnAfterSeconds: seconds } : {}),
    });
    context.annotate('authentication.kubernetes.io/issued-credential-id', `JTI=${id}`);
    object.metadata.creationTimestamp = formatTime(issuedAtSeconds * 1000);
    object['spec'] = { audiences, expirationSeconds: seconds, boundObjectRef: spec.boundObjectRef ?? null };
    object['status'] = { token, expirationTimestamp: formatTime((issuedAtSeconds + seconds) * 1000) };
    return object;
  };
}

function checkName({ metadata }: KubeObject, name: string): void {
  const requested = metadata.name ?? '';
  if (requested === '' || requested === name) return;
  throw newInvalid(KIND, name, [
    invalid('metadata.name', requested, 'must match the service account name if specified'),
  ]);
}

/**
 * Throws a conflict if the request names another UID than the service account has, so that a recreated account gives no token
 * to its former user.
 */
function checkUid({ metadata }: KubeObject, name: string, uid: string): void {
  const requested = metadata.uid ?? '';
  if (requested === '' || requested === uid) return;
  const why = `the UID in the token request (${requested}) does not match the UID of the service account (${uid})`;
  throw newConflict(KIND, name, why);
}

function checkLifetime(seconds: number): void {
  const errors = tokenLifetimeErrors('spec.expirationSeconds', seconds);
  if (errors.length > 0) throw newInvalid(KIND, '', errors);
}

interface Bound {
  readonly pod?: ObjectIdentity;
  readonly node?: ObjectIdentity;
  readonly secret?: ObjectIdentity;
}

async function boundObject(
  listers: Listers,
  namespace: string,
  account: string,
  ref: BoundObjectReference | undefined,
): Promise<Bound> {
  if (ref === undefined) return {};
  const kind = ref.kind ?? '';
  const gv = parseApiVersion(ref.apiVersion ?? '') ?? { group: '', version: '' };
  const isCore = gv.group === '';
  const find = async <T extends KubeObject>(
    get: (name: string) => Promise<T | undefined>,
    resource: string,
  ): Promise<T> => {
    const name = ref.name ?? '';
    if (name === '') throw newBadRequest('Name parameter required.');
    const found = await get(name);
    if (found === undefined) throw newNotFound({ group: '', resource }, name);
    if (ref.uid !== undefined && ref.uid !== '' && ref.uid !== found.metadata.uid) {
      throw newConflict(
        { group: gv.group, resource: kind },
        name,
        `the UID in the bound object reference (${ref.uid}) does not match the UID in record. The object might have been deleted and then recreated`,
      );
    }
    return found;
  };
  if (isCore && kind === 'Pod') {
    let pod: Pod | undefined;
    const lister = listers.of(pods);
    const checked = async (name: string): Promise<Pod | undefined> => {
      pod = await lister.live(namespace, name);
      if (pod !== undefined && pod.spec?.serviceAccountName !== account) {
        throw newBadRequest(
          `cannot bind token for serviceaccount ${quoteText(account)} to pod running with different serviceaccount name.`,
        );
      }
      return pod;
    };
    const found = await find(checked, 'pods');
    return { pod: identityOf(found), ...(await nodeOf(listers, found)) };
  }
  if (isCore && kind === 'Secret') {
    const secret = await find<Secret>((name) => listers.of(secrets).live(namespace, name), 'secrets');
    return { secret: identityOf(secret) };
  }
  if (isCore && kind === 'Node') {
    const node = await find<Node>((name) => listers.of(nodes).live('', name), 'nodes');
    return { node: identityOf(node) };
  }
  throw newBadRequest(`cannot bind token to object of type ${gv.group}/${gv.version}, Kind=${kind}`);
}

/** Returns the node of a pod for the token's claims. A node that does not exist is included by name only. */
async function nodeOf(listers: Listers, pod: Pod): Promise<Bound> {
  const name = pod.spec?.nodeName ?? '';
  if (name === '') return {};
  const node = await listers.of(nodes).live('', name);
  return { node: { name, uid: node?.metadata.uid ?? '' } };
}

function identityOf(object: KubeObject): ObjectIdentity {
  return { name: object.metadata.name ?? '', uid: object.metadata.uid ?? '' };
}
