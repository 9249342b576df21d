/** Serves `/`, which lists the served paths. */
import { stringifyJson } from '../../api/codec/json.ts';
import type { ResourceCatalog } from '../model/rest.ts';
import type { PathHandler, PathHandlers } from './path-handlers.ts';

/** Installs the list of paths at `/` and `/index.html`, computed at each request, for every method as with kube-apiserver. */
export function installIndex(paths: PathHandlers, catalog: ResourceCatalog): void {
  const serve: PathHandler = (request) => {
    const all = new Set(paths.paths());
    for (const { group, version } of catalog.resources()) {
      if (group === '') all.add('/api').add(`/api/${version}`);
      else all.add('/apis').add('/apis/').add(`/apis/${group}`).add(`/apis/${group}/${version}`);
    }
    all.delete('/');
    all.delete('/index.html');
    request.send(200, 'application/json', stringifyJson({ paths: [...all].sort() }, 2));
  };
  for (const path of ['/', '/index.html']) paths.exact(path, serve);
}
