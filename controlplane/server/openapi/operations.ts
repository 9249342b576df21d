/**
 * Describes the operations of a row of the catalog: paths, methods, ids, parameters and types. The documents of both OpenAPI
 * versions are built from this form. The ids are those that client generators expect (`readCoreV1NamespacedPod`).
 */
import { capitalized } from '../../../api/meta/capitalized.ts';
import type { ResourceInfo, SubresourceInfo } from '../../../api/schema/schema.ts';
import { article, watchText } from './operation-texts.ts';
import { groupPrefix, groupTag } from './group-names.ts';
import { withSharedParameters } from './shared-parameters.ts';
import {
  COMMON_PARAMETERS,
  DELETE_COLLECTION_PARAMETERS,
  DELETE_PARAMETERS,
  LIST_PARAMETERS,
  NAMESPACE,
  PATCH_PARAMETERS,
  PROXY_PATH,
  READ_PARAMETERS,
  SUBRESOURCE_PARAMETERS,
  WRITE_PARAMETERS,
  nameParameter,
  type ParameterInfo,
} from './parameters.ts';

type Method = 'get' | 'put' | 'post' | 'delete' | 'patch' | 'options' | 'head';

/** Refers to a type by its group, version and kind, or by its name if it has no kind. */
export type TypeRef =
  | { readonly group: string; readonly version: string; readonly kind: string }
  | { readonly name: string };

/** An operation of a path, in the terms that both OpenAPI versions have. */
export interface Operation {
  readonly method: Method;
  readonly id: string;
  readonly tag: string;
  readonly action: string;
  readonly description: string;
  readonly kind: { readonly group: string; readonly version: string; readonly kind: string };
  readonly parameters: readonly ParameterInfo[];
  readonly body: TypeRef | undefined;
  readonly bodyRequired: boolean;
  /** The type of the response. Absent if the response is text, and for connections. */
  readonly answer: TypeRef | undefined;
  /** The status codes of success. */
  readonly codes: readonly number[];
  /** Patches have their own media types. */
  readonly patch: boolean;
  /** The response is text, or an object in one of the usual encodings. */
  readonly isText?: boolean;
  /** The response can be a stream of watch events. */
  readonly streams: boolean;
}

/** A path of the API with its operations. */
export interface PathOperations {
  readonly path: string;
  /** The parameters of the path. */
  readonly parameters: readonly ParameterInfo[];
  readonly operations: readonly Operation[];
}

const STATUS: TypeRef = { name: 'io.k8s.apimachinery.pkg.apis.meta.v1.Status' };
const DELETE_OPTIONS: TypeRef = { name: 'io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions' };
const PATCH: TypeRef = { name: 'io.k8s.apimachinery.pkg.apis.meta.v1.Patch' };
const WATCH_EVENT: TypeRef = { name: 'io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent' };

const METHODS_OF_CONNECT: ReadonlyMap<string, readonly Method[]> = new Map(
  Object.entries({
    proxy: ['get', 'put', 'post', 'delete', 'options', 'head', 'patch'],
  }),
);

/** Returns the path of a group and version: `/api/v1`, or `/apis/apps/v1`. */
export function basePath(group: string, version: string): string {
  return group === '' ? `/api/${version}` : `/apis/${group}/${version}`;
}

/** Returns the name of the OpenAPI 3 document of a group and version. */
export const documentOf = ({ group, version }: { readonly group: string; readonly version: string }): string =>
  basePath(group, version).slice(1);

/** What the description of a path needs to know of its resource. */
export interface PathOptions {
  /** A DELETE returns the object instead of a Status. */
  readonly returnsDeleted?: boolean | undefined;
}

/** Returns the kind of lists. A custom resource may name its own. */
export const listKindOf = (row: ResourceInfo): string => row.custom?.listKind ?? `${row.kind}List`;

/**
 * Returns the paths of a row with their operations. kube-apiserver lists the deprecated watch paths only for built-in kinds.
 */
export function pathsOf(row: ResourceInfo, options: PathOptions = {}): PathOperations[] {
  const paths = new ResourcePaths(row, options);
  return [
    ...paths.resource(),
    ...row.subresources.flatMap((subresource) => paths.subresource(subresource)),
    ...(row.custom === undefined ? paths.watches() : []),
  ].map(withSharedParameters);
}

class ResourcePaths {
  readonly #row: ResourceInfo;
  readonly #base: string;
  readonly #prefix: string;
  readonly #scope: string;
  readonly #options: PathOptions;

  constructor(row: ResourceInfo, options: PathOptions) {
    this.#row = row;
    this.#options = options;
    this.#base = basePath(row.group, row.version);
    this.#prefix = groupPrefix(row.group, row.version);
    this.#scope = row.namespaced ? 'Namespaced' : '';
  }

  get #collection(): string {
    return collectionPath(this.#row, this.#base);
  }

  #ref(kind: string): TypeRef {
    return { group: this.#row.group, version: this.#row.version, kind };
  }

  #operation(
    method: Method,
    verb: string,
    options: Partial<Operation> & { readonly id: string; readonly action: string },
  ): Operation {
    const { group, version, kind } = this.#row;
    return {
      method,
      tag: groupTag(group, version),
      description: `${verb} ${kind}`,
      kind: { group, version, kind },
      parameters: [],
      body: undefined,
      bodyRequired: false,
      answer: this.#ref(kind),
      codes: [200],
      patch: false,
      streams: false,
      ...options,
    };
  }

  #has(verb: string): boolean {
    return this.#row.verbs.includes(verb);
  }

  resource(): PathOperations[] {
    const { kind, namespaced } = this.#row;
    const scope = namespaced ? [NAMESPACE] : [];
    const collection = this.#collectionOperations();
    const object = this.#objectOperations();
    const found: PathOperations[] = [];
    if (collection.length > 0) {
      found.push({ path: this.#collection, parameters: [...scope, ...COMMON_PARAMETERS], operations: collection });
    }
    if (object.length > 0) {
      const parameters = [nameParameter(kind), ...scope, ...COMMON_PARAMETERS];
      found.push({ path: `${this.#collection}/{name}`, parameters, operations: object });
    }
    if (namespaced && this.#has('list')) {
      const id = `list${this.#prefix}${kind}ForAllNamespaces`;
      const operation = this.#list(id);
      found.push({
        path: `${this.#base}/${this.#row.resource}`,
        parameters: [...COMMON_PARAMETERS, ...LIST_PARAMETERS],
        operations: [{ ...operation, parameters: [] }],
      });
    }
    return found;
  }

  #list(id: string): Operation {
    // kube-apiserver does not mention watches of custom resources.
    const verb = this.#row.custom === undefined && this.#has('watch') ? 'list or watch' : 'list';
    return this.#operation('get', `${verb} objects of kind`, {
      id,
      action: 'list',
      parameters: LIST_PARAMETERS,
      answer: this.#ref(listKindOf(this.#row)),
      streams: true,
    });
  }

  #collectionOperations(): Operation[] {
    const { kind } = this.#row;
    const named = `${this.#scope}${kind}`;
    const found: Operation[] = [];
    if (this.#has('list')) found.push(this.#list(`list${this.#prefix}${named}`));
    if (this.#has('create')) {
      found.push(
        this.#operation('post', `create${article(kind)}`, {
          id: `create${this.#prefix}${named}`,
          action: 'post',
          parameters: WRITE_PARAMETERS,
          body: this.#ref(kind),
          bodyRequired: true,
          codes: [200, 201, 202],
        }),
      );
    }
    if (this.#has('deletecollection')) {
      found.push(
        this.#operation('delete', 'delete collection of', {
          id: `delete${this.#prefix}Collection${named}`,
          action: 'deletecollection',
          parameters: this.#row.custom === undefined ? DELETE_COLLECTION_PARAMETERS : LIST_PARAMETERS,
          body: DELETE_OPTIONS,
          answer: STATUS,
        }),
      );
    }
    return found;
  }

  #objectOperations(): Operation[] {
    const { kind, verbs } = this.#row;
    const named = `${this.#scope}${kind}`;
    const found = this.#readAndWrite(verbs, { named, type: this.#ref(kind), part: '' });
    if (this.#has('delete')) {
      found.push(
        this.#operation('delete', `delete${article(kind)}`, {
          id: `delete${this.#prefix}${named}`,
          action: 'delete',
          parameters: DELETE_PARAMETERS,
          body: DELETE_OPTIONS,
          answer: this.#options.returnsDeleted === true ? this.#ref(kind) : STATUS,
          codes: [200, 202],
        }),
      );
    }
    return found;
  }

  /** Returns the operations that read, replace and patch one object. `part` is empty, or names the subresource. */
  #readAndWrite(
    verbs: readonly string[],
    { named, type, part }: { readonly named: string; readonly type: TypeRef; readonly part: string },
  ): Operation[] {
    const found: Operation[] = [];
    const common = { answer: type };
    const specified = (verb: string): string => `${verb}${part === '' ? '' : ` ${part} of`} the specified`;
    if (verbs.includes('get')) {
      found.push(
        this.#operation('get', specified('read'), {
          ...common,
          id: `read${this.#prefix}${named}`,
          action: 'get',
          parameters: this.#row.custom === undefined ? [] : READ_PARAMETERS,
        }),
      );
    }
    if (verbs.includes('update')) {
      found.push(
        this.#operation('put', specified('replace'), {
          ...common,
          id: `replace${this.#prefix}${named}`,
          action: 'put',
          parameters: WRITE_PARAMETERS,
          body: type,
          bodyRequired: true,
          codes: [200, 201],
        }),
      );
    }
    if (verbs.includes('patch')) {
      found.push(
        this.#operation('patch', specified('partially update'), {
          ...common,
          id: `patch${this.#prefix}${named}`,
          action: 'patch',
          parameters: PATCH_PARAMETERS,
          body: PATCH,
          bodyRequired: true,
          codes: this.#row.custom === undefined ? [200, 201] : [200],
          patch: true,
        }),
      );
    }
    return found;
  }

  subresource(subresource: SubresourceInfo): PathOperations[] {
    const { resource, kind } = this.#row;
    const { name, group, version } = subresource;
    const path = `${this.#collection}/{name}/${name}`;
    const named = `${this.#scope}${kind}${capitalized(name)}`;
    const subresourceKind = { group, version, kind: subresource.kind };
    const parameters = [nameParameter(subresource.kind), ...(this.#row.namespaced ? [NAMESPACE] : [])];
    if (['attach', 'exec', 'portforward', 'proxy'].includes(name))
      return this.#connections(subresource, path, parameters);
    if (name === 'log') {
      const operation = this.#operation('get', 'read log of the specified', {
        id: `read${this.#prefix}${named}`,
        action: 'get',
        answer: undefined,
        isText: true,
      });
      const query = SUBRESOURCE_PARAMETERS.get(`${resource}/log`) ?? [];
      return [{ path, parameters: [...parameters, ...COMMON_PARAMETERS, ...query], operations: [operation] }];
    }
    const operations = this.#readAndWrite(subresource.verbs, { named, type: subresourceKind, part: name }).map(
      (operation) => ({
        ...operation,
        kind: subresourceKind,
      }),
    );
    if (subresource.verbs.includes('create')) {
      operations.push({
        ...this.#operation('post', `create ${name} of${article(kind)}`, {
          id: `create${this.#prefix}${named}`,
          action: 'post',
          parameters: WRITE_PARAMETERS,
          body: subresourceKind,
          bodyRequired: true,
          answer: subresourceKind,
          codes: [200, 201, 202],
        }),
        kind: subresourceKind,
      });
    }
    return [{ path, parameters: [...parameters, ...COMMON_PARAMETERS], operations }];
  }

  #connections(subresource: SubresourceInfo, path: string, parameters: readonly ParameterInfo[]): PathOperations[] {
    const { resource, kind } = this.#row;
    const { name, group, version } = subresource;
    const query = SUBRESOURCE_PARAMETERS.get(`${resource}/${name}`) ?? [];
    const at = (suffix: string): Operation[] =>
      (METHODS_OF_CONNECT.get(name) ?? ['get', 'post']).map((method) => ({
        ...this.#operation(method, `connect ${method.toUpperCase()} requests to ${name} of`, {
          id: `connect${this.#prefix}${capitalized(method)}${this.#scope}${kind}${capitalized(name)}${suffix}`,
          action: 'connect',
          answer: undefined,
        }),
        kind: { group, version, kind: subresource.kind },
      }));
    const found: PathOperations[] = [{ path, parameters: [...parameters, ...query], operations: at('') }];
    if (name === 'proxy') {
      found.push({
        path: `${path}/{path}`,
        parameters: [...parameters, PROXY_PATH, ...query.map((parameter) => ({ ...parameter }))],
        operations: at('WithPath'),
      });
    }
    return found;
  }

  watches(): PathOperations[] {
    if (!this.#has('watch')) return [];
    const { kind, namespaced, resource } = this.#row;
    const prefix = `${this.#base}/watch`;
    const scope = namespaced ? [NAMESPACE] : [];
    const parameters = [...COMMON_PARAMETERS, ...LIST_PARAMETERS];
    const watch = (id: string, action: 'watch' | 'watchlist'): Operation =>
      this.#operation('get', 'watch', {
        id: `watch${this.#prefix}${id}`,
        action,
        description: watchText(kind, action),
        answer: WATCH_EVENT,
        streams: true,
      });
    const collection = this.#collection.replace(this.#base, prefix);
    const found: PathOperations[] = [
      {
        path: collection,
        parameters: [...scope, ...parameters],
        operations: [watch(`${this.#scope}${kind}List`, 'watchlist')],
      },
      {
        path: `${collection}/{name}`,
        parameters: [nameParameter(kind), ...scope, ...parameters],
        operations: [watch(`${this.#scope}${kind}`, 'watch')],
      },
    ];
    if (namespaced) {
      found.push({
        path: `${prefix}/${resource}`,
        parameters,
        operations: [watch(`${kind}ListForAllNamespaces`, 'watchlist')],
      });
    }
    return found;
  }
}

function collectionPath(row: ResourceInfo, base: string): string {
  return row.namespaced ? `${base}/namespaces/{namespace}/${row.resource}` : `${base}/${row.resource}`;
}
