/** Serves a resource with one `Rest` for each served version, and one for each subresource that writes the same object. */
import type { ExpectedKind } from './object-decoding.ts';
import { withManagedFields } from './managed-fields.ts';
import { quoteText } from '../../api/meta/quote.ts';
import { apiVersionOf, type KubeObject } from '../../api/meta/object.ts';
import { newForbidden } from '../../api/meta/status-error.ts';
import type { SubresourceInfo } from '../../api/schema/schema.ts';
import { nextTurn } from './large-object.ts';
import { dropRepeatedOwners, matchName, matchNamespace, wipeSystemFields } from './object-identity.ts';
import { patchObject } from './object-patching.ts';
import { inTurnsIf } from '../../api/machinery/pausing.ts';
import type { ManagedWrite } from './field-management.ts';
import type {
  Body,
  DeleteOptions,
  Entry,
  ListOptions,
  ListResult,
  Patch,
  Rest,
  RequestContext,
  WriteOptions,
  Written,
} from '../model/rest.ts';
import { deleteCollection, deleteEntry } from './store-delete.ts';
import { currentEntry, getEntry, listEntries, watchEntries } from './store-read.ts';
import { changeEntry, createEntry, type Change } from './store-write.ts';
import type { WriteTarget } from './write-admission.ts';
import { subjectOf, type Endpoint } from './store.ts';
import type { UpdateStrategy } from './strategy.ts';
import { matchingSink, storedSelectors } from './served-selection.ts';
import { type ReadVersion, type ServedVersion, VersionCodec } from './version-codec.ts';

/** An endpoint that writes objects in one version: the resource itself or a subresource. */
interface WritePath {
  readonly version: ServedVersion;
  readonly codec: VersionCodec;
  readonly endpoint: Endpoint;
}

/** A request that writes one object. */
interface WriteRequest {
  readonly path: WritePath;
  readonly context: RequestContext;
  /** Empty for a resource without namespaces. */
  readonly namespace: string;
  /** The name in the path. Empty for a create. */
  readonly name: string;
  readonly options: WriteOptions;
}

/** Serves the reads of a resource in one version. */
export function createReadingRest(version: ReadVersion): Rest {
  return { info: version.info, subresource: undefined, ...readVerbs(version, new VersionCodec(version)) };
}

/** Serves a resource in one version, with the verbs of its `info`. */
export function createResourceRest(version: ServedVersion): Rest {
  const { store, info } = version;
  const codec = new VersionCodec(version);
  const path: WritePath = { version, codec, endpoint: endpointOf(version, '', store.strategy) };
  const { endpoint } = path;
  const verbs = new Set(info.verbs);
  return {
    info,
    subresource: undefined,
    ...readVerbs(version, codec),
    ...(verbs.has('create')
      ? {
          create: (context, namespace, _name, body, options) =>
            create({ path, context, namespace, name: '', options }, body),
        }
      : {}),
    ...writeVerbs(path, verbs),
    ...(verbs.has('delete')
      ? {
          delete: async (context, namespace, name, options) => {
            const target = { endpoint, namespace, name, options, optionsObject: deleteOptionsObject(options) };
            warnOfDependents(version, context, options);
            // Nothing is deleted if the webhook of a version cannot convert the object, as in kube-apiserver.
            await codec.ready([currentEntry(store, namespace, name)]);
            const deleted = await deleteEntry(store, context, target);
            if (deleted.state === 'marked') return { state: 'marked', entry: await codec.servedEntry(deleted.entry) };
            return {
              ...deleted,
              entry: deleted.entry === undefined ? undefined : await codec.servedEntry(deleted.entry),
            };
          },
        }
      : {}),
    ...(verbs.has('deletecollection')
      ? {
          deleteCollection: async (context, namespace, list, options) => {
            const target = { endpoint, namespace, options, optionsObject: deleteOptionsObject(options) };
            const page = (one: ListOptions): Promise<ListResult> | ListResult =>
              listEntries(store, context, { namespace }, one);
            const selectsConverted = codec.matcher(list) !== undefined;
            // Here too, nothing is deleted if the webhook cannot convert one of the objects.
            const listed = selectsConverted
              ? await codec.listSelected(list, page)
              : await codec.list(await page(codec.withStoredFields(list)));
            warnOfDependents(version, context, options);
            await deleteCollection(store, context, target, listed);
            return listed;
          },
        }
      : {}),
  };
}

function warnOfDependents({ store }: ServedVersion, context: RequestContext, options: DeleteOptions): void {
  const text = store.strategy.defaultPropagationWarning;
  if (text !== undefined && options.propagationPolicy === '' && options.orphanDependents === undefined)
    context.warn(text);
}

function readVerbs(version: ReadVersion, codec: VersionCodec): Pick<Rest, 'get' | 'list' | 'watch'> {
  const { store, info } = version;
  const verbs = new Set(info.verbs);
  return {
    ...(verbs.has('get') ? getVerb({ version, codec }) : {}),
    ...(verbs.has('list')
      ? {
          list: (context, namespace, options) =>
            codec.listSelected(options, (page) => listEntries(store, context, { namespace }, page)),
        }
      : {}),
    ...(verbs.has('watch')
      ? {
          watch: (context, namespace, options, sink) => {
            const matches = codec.matcher(options);
            const client = matches === undefined ? sink : matchingSink(sink, matches);
            const stored = matches === undefined ? codec.withStoredFields(options) : storedSelectors(options);
            return codec.watch(client, (converted) =>
              watchEntries(store, context, { ...stored, namespace }, converted),
            );
          },
        }
      : {}),
  };
}

/** Serves a subresource such as `status`, which writes the same object with other rules. */
export function createSubresourceRest(
  version: ServedVersion,
  subresource: SubresourceInfo,
  strategy: UpdateStrategy,
): Rest {
  const path: WritePath = {
    version,
    codec: new VersionCodec(version),
    endpoint: endpointOf(version, subresource.name, strategy),
  };
  const verbs = new Set(subresource.verbs);
  return { info: version.info, subresource, ...(verbs.has('get') ? getVerb(path) : {}), ...writeVerbs(path, verbs) };
}

function endpointOf(version: ServedVersion, subresource: string, strategy: UpdateStrategy): Endpoint {
  const { group, version: name, kind } = version.info;
  return { info: version.info, subresource, kind: { group, version: name, kind }, strategy };
}

function getVerb(path: { readonly version: ReadVersion; readonly codec: VersionCodec }): Pick<Rest, 'get'> {
  return {
    get: (context, namespace, name, options) => {
      const entry = getEntry(path.version.store, context, { namespace, name }, options);
      return entry instanceof Promise
        ? entry.then((one) => path.codec.servedEntry(one))
        : path.codec.servedEntry(entry);
    },
  };
}

function writeVerbs(path: WritePath, verbs: ReadonlySet<string>): Pick<Rest, 'update' | 'patch'> {
  return {
    ...(verbs.has('update')
      ? {
          update: (context, namespace, name, body, options) =>
            update({ path, context, namespace, name, options }, body),
        }
      : {}),
    ...(verbs.has('patch')
      ? {
          patch: (context, namespace, name, patch, options) =>
            applyPatch({ path, context, namespace, name, options }, patch),
        }
      : {}),
  } as Pick<Rest, 'update' | 'patch'>;
}

function expectedAt({ version, endpoint }: WriteRequest['path']): ExpectedKind {
  return endpoint.subresource === 'status' ? { ...version.expected, isStatus: true } : version.expected;
}

/** Returns the object with the owners of its fields, which are computed on the object as `VersionCodec.asServed` returns it. */
async function withFieldOwners(
  request: WriteRequest,
  live: KubeObject | undefined,
  object: KubeObject,
  size: { readonly isLarge?: boolean },
): Promise<KubeObject> {
  const { path } = request;
  const shown = path.codec.asServed(object);
  const owned = await path.version.fieldManagement[manageBy(path, 'update', size)](live, shown, managedWrite(request));
  return shown === object ? owned : withManagedFields(object, owned.metadata.managedFields);
}

async function create(request: WriteRequest, body: Body): Promise<Entry> {
  const { path, context, namespace, name, options } = request;
  const { version, endpoint, codec } = path;
  const sent = (body.value ?? {}) as { readonly metadata?: { readonly name?: string } };
  checkCreates(version, sent.metadata?.name ?? '');
  const object = await inTurnsIf(
    context.isLarge,
    version.decoder.decodeBody(context, body, version.expected, options.fieldValidation),
  );
  matchNamespace(object, version.info, namespace);
  wipeSystemFields(object);
  dropRepeatedOwners(object, context);
  if (context.isLarge === true) await nextTurn();
  const managed = await withFieldOwners(request, undefined, object, context);
  if (context.isLarge === true) await nextTurn();
  const target = {
    endpoint,
    namespace,
    name,
    options,
    optionsObject: writeOptionsObject('CreateOptions', options),
  };
  return await codec.servedEntry(await createEntry(version.store, context, target, codec.toWritten(managed)));
}

/** The endpoints whose PUT creates a missing object, if the strategy allows it. */
const CREATING: ReadonlySet<string> = new Set(['', 'status']);

async function update(request: WriteRequest, body: Body): Promise<Written> {
  const { path, context, options } = request;
  const { version, codec } = path;
  const { strategy } = version.store;
  const decode = async (): Promise<KubeObject> => {
    const object = await inTurnsIf(
      context.isLarge,
      version.decoder.decodeBody(context, body, expectedAt(path), options.fieldValidation),
    );
    matchNamespace(object, version.info, request.namespace);
    matchName(object, request.name);
    dropRepeatedOwners(object, context);
    return object;
  };
  let first: KubeObject | undefined = await decode();
  const { uid } = first.metadata;
  const change: Change = {
    creates: CREATING.has(path.endpoint.subresource) && strategy.allowCreateOnUpdate === true,
    authorizeCreate: () => authorizeCreate(request),
    async compute(current, { isLarge }) {
      const object = first ?? (await decode());
      first = undefined;
      if (context.isLarge === true) await nextTurn();
      const live = current === undefined ? undefined : codec.live(current);
      return codec.toWritten(await withFieldOwners(request, live, object, { isLarge }));
    },
    ...(uid === undefined || uid === '' ? {} : { uid }),
  };
  return await writeChange(request, 'UpdateOptions', change);
}

async function applyPatch(request: WriteRequest, patch: Patch): Promise<Written> {
  const { path, context, namespace, name, options } = request;
  const { version, codec } = path;
  const { expected, decoder, fieldManagement } = version;
  const apply = patch.type === 'apply';
  const change: Change = {
    creates: apply && path.endpoint.subresource === '',
    authorizeCreate: () => authorizeCreate(request),
    async compute(current, { isLarge }) {
      const live = current === undefined ? undefined : codec.live(current);
      let object: KubeObject;
      if (patch.type === 'apply') {
        object = await fieldManagement[manageBy(path, 'apply', { isLarge })](live, patch, {
          ...managedWrite(request),
          target: { namespace, name },
          validation: options.fieldValidation,
          warn: (text) => context.warn(text),
        });
      } else {
        const patched = await inTurnsIf(isLarge, patchObject(live ?? { metadata: {} }, patch, expected));
        if (isLarge) await nextTurn();
        object = await inTurnsIf(
          isLarge,
          decoder.decodePatched(context, patched, expectedAt(path), options.fieldValidation),
        );
      }
      matchName(object, name);
      matchNamespace(object, version.info, namespace);
      dropRepeatedOwners(object, context);
      if (isLarge) await nextTurn();
      if (!apply) object = await withFieldOwners(request, live, object, { isLarge });
      return codec.toWritten(object);
    },
  };
  return await writeChange(request, 'PatchOptions', change);
}

async function writeChange(
  { path, context, namespace, name, options }: WriteRequest,
  kind: 'UpdateOptions' | 'PatchOptions',
  change: Change,
): Promise<Written> {
  const optionsObject = writeOptionsObject(kind, options);
  const isPatch = kind === 'PatchOptions';
  const target: WriteTarget = { endpoint: path.endpoint, namespace, name, options, optionsObject, isPatch };
  const written = await changeEntry(path.version.store, context, target, change);
  return { entry: await path.codec.servedEntry(written.entry), created: written.created };
}

/** Throws a 403 if no object may be created now. */
function checkCreates({ info, createRefusal }: ServedVersion, name: string): void {
  if (createRefusal === undefined) return;
  throw newForbidden({ group: info.group, resource: info.resource }, name, createRefusal);
}

async function authorizeCreate({ path, context, namespace, name }: WriteRequest): Promise<void> {
  const { info } = path.version;
  checkCreates(path.version, name);
  if (await context.may('create', { group: info.group, resource: info.resource, namespace, name })) return;
  const where = namespace === '' ? 'at the cluster scope' : `in the namespace ${quoteText(namespace)}`;
  const who = quoteText(context.user.name);
  const what = `cannot create resource ${quoteText(info.resource)} in API group ${quoteText(info.group)} ${where}`;
  throw newForbidden(subjectOf({ info }), name, `User ${who} ${what}`);
}

/** Returns the name of the function that manages fields. */
export function manageBy<Verb extends 'update' | 'apply'>(
  { version }: { readonly version: ReadVersion },
  verb: Verb,
  { isLarge = false }: { readonly isLarge?: boolean | undefined } = {},
): Verb | `${Verb}InTurns` {
  return isLarge || version.conversion?.convertAll !== undefined ? `${verb}InTurns` : verb;
}

function managedWrite({ path, context }: WriteRequest): ManagedWrite {
  return {
    manager: context.fieldManager,
    apiVersion: apiVersionOf(path.version.info),
    subresource: path.endpoint.subresource,
    resetFields: path.endpoint.strategy.resetFields ?? [],
  };
}

/** Returns the options object for admission plugins. A patch has the options of an update, and default values are omitted. */
export function writeOptionsObject(
  kind: 'CreateOptions' | 'UpdateOptions' | 'PatchOptions',
  options: WriteOptions,
): Record<string, unknown> {
  return {
    kind: kind === 'PatchOptions' ? 'UpdateOptions' : kind,
    apiVersion: 'meta.k8s.io/v1',
    ...(options.dryRun ? { dryRun: ['All'] } : {}),
    ...options.given,
  };
}

function deleteOptionsObject(options: DeleteOptions): Record<string, unknown> {
  return {
    kind: 'DeleteOptions',
    apiVersion: 'meta.k8s.io/v1',
    ...(options.dryRun ? { dryRun: ['All'] } : {}),
    ...(options.gracePeriodSeconds === undefined ? {} : { gracePeriodSeconds: options.gracePeriodSeconds }),
    ...(options.propagationPolicy === '' ? {} : { propagationPolicy: options.propagationPolicy }),
    ...(options.orphanDependents === undefined ? {} : { orphanDependents: options.orphanDependents }),
    ...(options.preconditions === undefined ? {} : { preconditions: { ...options.preconditions } }),
  };
}
