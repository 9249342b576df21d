/**
 * Implements endpoints whose `create` computes a response instead of storing an object: one generic `create` around a reviewer.
 */
import { apiVersionOf, type JsonObject, type KubeObject } from '../../../api/meta/object.ts';
import { withoutEmpties } from '../../../api/schema/empty-values.ts';
import { builtinResources } from '../../../api/schema/resources.ts';
import type { ResourceInfo, Schema, SubresourceInfo } from '../../../api/schema/schema.ts';
import type { AdmissionChain } from '../../security/admission/admission.ts';
import type { UserInfo } from '../../model/user-info.ts';
import type { FieldManagement } from '../../registry/field-management.ts';
import { builtInReader, createDecoder, type Decoder, type ExpectedKind } from '../../registry/object-decoding.ts';
import { dropRepeatedOwners, matchNamespace, wipeSystemFields } from '../../registry/object-identity.ts';
import type { RequestContext, Rest } from '../../model/rest.ts';
import { inTurnsIf } from '../../../api/machinery/pausing.ts';
import { admissionAttributes, unstoredEntry } from '../../registry/store.ts';

/** What a reviewer gets. */
interface ReviewRequest {
  readonly user: UserInfo;
  readonly namespace: string;
  /** The name of the object of a subresource; otherwise empty. */
  readonly name: string;
  /** The decoded and defaulted object. A reviewer may modify and return it. */
  readonly object: KubeObject;
  readonly dryRun: boolean;
  readonly context: RequestContext;
}

/** Throws a `StatusError` if the object is invalid. */
export type Reviewer = (request: ReviewRequest) => Promise<KubeObject> | KubeObject;

/** A resource, or a subresource of it, whose create is a review. */
export interface ReviewEndpoint {
  readonly group: string;
  readonly resource: string;
  readonly subresource?: string;
  /** Sets defaults that the schema cannot express. */
  readonly applyDefaults?: (object: KubeObject) => void;
  readonly review: Reviewer;
}

/** The parts of the registry that every create uses. */
interface ReviewRestsOptions {
  readonly schema: Schema;
  readonly admission: AdmissionChain;
  /** The registry's field management. */
  readonly fieldManagement: (expected: ExpectedKind, decoder: Decoder) => FieldManagement;
}

/** Returns a row of the catalog for each version of the endpoints whose kind is in the schema. */
export function reviewRests(endpoints: readonly ReviewEndpoint[], options: ReviewRestsOptions): Rest[] {
  const decoder = createDecoder(options.schema);
  return endpoints.flatMap((endpoint) =>
    builtinResources()
      .filter((info) => info.group === endpoint.group && info.resource === endpoint.resource)
      .flatMap((info) => {
        const rest = reviewRest(endpoint, info, decoder, options);
        return rest === undefined ? [] : [rest];
      }),
  );
}

function reviewRest(
  endpoint: ReviewEndpoint,
  info: ResourceInfo,
  decoder: Decoder,
  options: ReviewRestsOptions,
): Rest | undefined {
  const subresource: SubresourceInfo | undefined = info.subresources.find((one) => one.name === endpoint.subresource);
  if (endpoint.subresource !== undefined && subresource === undefined) return undefined;
  const kind = {
    group: subresource?.group ?? info.group,
    version: subresource?.version ?? info.version,
    kind: subresource?.kind ?? info.kind,
  };
  const struct = options.schema.kind(kind.group, kind.version, kind.kind);
  if (struct === undefined) return undefined;
  const expected: ExpectedKind = { ...kind, struct, applyDefaults: endpoint.applyDefaults, reader: builtInReader };
  const fields = options.fieldManagement(expected, decoder);
  const apiVersion = apiVersionOf(kind);
  return {
    info,
    subresource,
    async create(context, namespace, name, body, { dryRun, fieldValidation }) {
      const decoded = await inTurnsIf(context.isLarge, decoder.decodeBody(context, body, expected, fieldValidation));
      matchNamespace(decoded, info, namespace);
      // A TokenRequest keeps its UID, which names the service account that the token is for.
      if (subresource === undefined) wipeSystemFields(decoded);
      dropRepeatedOwners(decoded, context);
      if (subresource === undefined && namespace !== '' && !info.namespaced) delete decoded.metadata.namespace;
      const object = fields.update(undefined, decoded, {
        manager: context.fieldManager,
        apiVersion,
        subresource: subresource?.name ?? '',
        resetFields: [],
      });
      const attributes = admissionAttributes(context, {
        operation: 'CREATE',
        endpoint: { info, subresource: subresource?.name ?? '', kind } as Parameters<
          typeof admissionAttributes
        >[1]['endpoint'],
        namespace,
        name: name === '' ? (object.metadata.name ?? '') : name,
        object,
        oldObject: undefined,
        options: { kind: 'CreateOptions', apiVersion: 'meta.k8s.io/v1', ...(dryRun ? { dryRun: ['All'] } : {}) },
        dryRun,
      });
      await options.admission.admit(attributes, context.signal);
      const reviewed = attributes.object ?? object;
      const result = await endpoint.review({ user: context.user, namespace, name, object: reviewed, dryRun, context });
      await options.admission.validate(attributes, context.signal);
      return unstoredEntry(withoutEmpties(struct, result as unknown as JsonObject) as unknown as KubeObject);
    },
  };
}
