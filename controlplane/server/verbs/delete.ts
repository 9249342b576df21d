/** Handles DELETE of one object. The response is the object, if it still exists or its kind returns it, or else a Status. */
import type { Deleted, Rest } from '../../model/rest.ts';
import { readDeleteOptions } from '../body.ts';
import { parseDeleteOptions } from '../options.ts';
import type { ApiRequest } from '../request.ts';
import { sendEntry, sendObject } from '../response.ts';
import { hasProtobuf, outputOf, pathName, pathNamespace, type VerbHandler } from './verb.ts';

/** Deletes the object of the path. The options may be in the body or in the query. */
export const remove: VerbHandler = async (request, rest, context) => {
  const media = outputOf(request, rest, context);
  const protobuf = hasProtobuf(rest, context.encodings);
  const body = await readDeleteOptions(request, { ...context, protobuf });
  const options = parseDeleteOptions(request.query, body);
  const deleted = await rest.delete?.(request, pathNamespace(request, rest), pathName(request), options);
  if (deleted === undefined) return undefined;
  const { entry } = deleted;
  const reply = { request, encodings: context.encodings, media };
  if (entry === undefined) {
    sendObject(reply, 200, successStatus(request, rest, deleted));
    return undefined;
  }
  // For the older field `orphanDependents: false`, kube-apiserver responds that the deletion was accepted.
  const accepted = deleted.state === 'marked' && options.orphanDependents === false;
  return sendEntry(reply, accepted ? 202 : 200, rest, entry);
};

function successStatus(request: ApiRequest, rest: Rest, deleted: Deleted): object {
  const { info } = rest;
  const uid = deleted.state === 'gone' ? deleted.object.metadata.uid : undefined;
  return {
    kind: 'Status',
    apiVersion: 'v1',
    metadata: {},
    status: 'Success',
    details: {
      name: pathName(request),
      ...(info.group === '' ? {} : { group: info.group }),
      kind: info.resource,
      ...(uid === undefined ? {} : { uid }),
    },
  };
}
