/**
 * Wraps a client of this process, so that its writes are in the audit log as those of other users are. Reads and watches are
 * not recorded.
 */
import type { Client, Resource } from '../../../api/client/client.ts';
import type { UserInfo } from '../../model/user-info.ts';
import type { RequestInfo } from '../request-info.ts';
import type { Audit } from './audit.ts';

interface AuditedClientOptions {
  readonly audit: Pick<Audit, 'recorded'>;
  readonly user: UserInfo;
  readonly userAgent: string;
}

interface Target {
  readonly verb: string;
  readonly resource: Resource;
  readonly namespace: string;
  readonly name: string;
  readonly subresource: string | undefined;
}

/** Returns a client that records its writes under the given user, and rejects them if a strict backend fails. */
export function auditedClient(client: Client, { audit, user, userAgent }: AuditedClientOptions): Client {
  const recorded = <T>(target: Target, body: unknown, write: () => Promise<T>): Promise<T> =>
    audit.recorded({ user, userAgent, info: infoOf(target), body }, write);
  return {
    get: (...args) => client.get(...args),
    list: (...args) => client.list(...args),
    watch: (...args) => client.watch(...args),
    create: (resource, namespace, object, options) =>
      recorded(
        { verb: 'create', resource, namespace, name: options?.name ?? '', subresource: options?.subresource },
        object,
        () => client.create(resource, namespace, object, options),
      ),
    update: (resource, object, options) => {
      const { namespace = '', name = '' } = object.metadata;
      const target = { verb: 'update', resource, namespace, name, subresource: options?.subresource };
      return recorded(target, object, () => client.update(resource, object, options));
    },
    patch: (resource, namespace, name, patch) =>
      recorded({ verb: 'patch', resource, namespace, name, subresource: patch.subresource }, patch.body, () =>
        client.patch(resource, namespace, name, patch),
      ),
    delete: (resource, namespace, name, options) =>
      recorded({ verb: 'delete', resource, namespace, name, subresource: undefined }, undefined, () =>
        client.delete(resource, namespace, name, options),
      ),
    deleteCollection: (resource, options) =>
      recorded(
        { verb: 'deletecollection', resource, namespace: options.namespace ?? '', name: '', subresource: undefined },
        undefined,
        () => client.deleteCollection(resource, options),
      ),
  };
}

function infoOf({
  verb,
  resource: { group, version, resource },
  namespace,
  name,
  subresource = '',
}: Target): RequestInfo {
  const parts = [resource, name, subresource].filter((part) => part !== '');
  const root = group === '' ? ['api', version] : ['apis', group, version];
  const scope = namespace === '' ? [] : ['namespaces', namespace];
  return {
    ...{ isResource: true, verb, group, version, namespace, resource, subresource, name, parts },
    path: `/${[...root, ...scope, ...parts].join('/')}`,
    watchPrefix: false,
  };
}
