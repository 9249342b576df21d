/**
 * Creates informers of a server that is not trusted to send objects of the right shape, because it is hostile or of another
 * release. A malformed object is left out and logged, or stays as it was before, so that it concerns nothing but itself.
 */
import { shapedObject } from '../schema/shape.ts';
import { Informers, type InformersOptions } from './informer.ts';

/** Creates informers over a client. The objects in the caches have the types of the schema, and no fields that it lacks. */
export function remoteInformers(options: Omit<InformersOptions, 'shape'>): Informers {
  return new Informers({ ...options, shape: shapedObject });
}
