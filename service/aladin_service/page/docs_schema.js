// Schemas of the OpenAPI document as tables, types in words, and example values.

import { make } from "./elements.js";
import { capital } from "./formats.js";
import { dataTable } from "./tables.js";

const BOUNDS = {
  minimum: "at least",
  maximum: "at most",
  exclusiveMinimum: "greater than",
  exclusiveMaximum: "less than",
  minLength: "minimum length",
  maxLength: "maximum length",
  minItems: "minimum number of entries",
  maxItems: "maximum number of entries",
};

const nameOf = (reference) => reference.split("/").at(-1);

// One named schema: its fields, or its type if it has none.
export function schemaElement(name, schema) {
  const element = make("details", { id: name, className: "schema" }, make("summary", {}, name));
  const fill = () => {
    if (element.childElementCount > 1) return;
    if (schema.description) element.append(make("p", {}, schema.description));
    const fields = Object.entries(schema.properties ?? {});
    if (fields.length === 0) {
      element.append(make("p", {}, ...typeOf(schema)));
      return;
    }
    const rows = fields.map(([field, its]) => [
      make("code", {}, field),
      [...typeOf(its), schema.required?.includes(field) ? ", required" : ""],
      [its.description, constraintsOf(its)].filter(Boolean).join(" ") || null,
    ]);
    element.append(dataTable({ caption: name, head: ["Field", "Type", "Description"], rows }));
  };
  element.addEventListener("toggle", fill);
  return element;
}

// Texts and links that describe the type of a value.
export function typeOf(schema) {
  if (schema.$ref) {
    const name = nameOf(schema.$ref);
    return [make("a", { href: `#${name}` }, name)];
  }
  const either = schema.anyOf ?? schema.oneOf;
  if (either) return either.flatMap((each, place) => [place ? " or " : "", ...typeOf(each)]);
  if (schema.enum) return [schema.enum.map((value) => JSON.stringify(value)).join(" or ")];
  if ("const" in schema) return [JSON.stringify(schema.const)];
  if (schema.type === "array") return ["list of ", ...entriesOf(schema)];
  if (typeof schema.additionalProperties === "object") {
    return ["object of ", ...typeOf(schema.additionalProperties)];
  }
  const form = schema.contentEncoding ?? schema.format;
  const type = [schema.type ?? "any value"].flat().join(" or ");
  return [form ? `${type} (${form})` : type];
}

function entriesOf({ items, prefixItems }) {
  if (prefixItems) return [`${prefixItems.length} × `, ...typeOf(prefixItems[0])];
  return typeOf(items ?? {});
}

// "At least 1, at most 1000. Default: 10." or "".
export function constraintsOf(schema) {
  const bounds = [schema, ...(schema.anyOf ?? [])].flatMap((each) =>
    Object.entries(BOUNDS).filter(([key]) => key in each).map(([key, words]) => `${words} ${each[key]}`));
  const sentences = [];
  if (bounds.length) sentences.push(`${capital(bounds.join(", "))}.`);
  if (schema.default !== undefined) sentences.push(`Default: ${JSON.stringify(schema.default)}.`);
  return sentences.join(" ");
}

// The schema's example, or a value with only the required fields.
export function exampleOf(schema, schemas) {
  if (schema.$ref) return exampleOf(schemas[nameOf(schema.$ref)], schemas);
  if (schema.examples) return schema.examples[0];
  if (schema.anyOf) return exampleOf(schema.anyOf[0], schemas);
  if (schema.enum) return schema.enum[0];
  if (schema.type === "array") return [exampleOf(schema.items ?? {}, schemas)];
  if (schema.properties) {
    const required = (schema.required ?? []).map((name) => [
      name, exampleOf(schema.properties[name], schemas),
    ]);
    return Object.fromEntries(required);
  }
  return { integer: 1, number: 1, boolean: true, object: {} }[schema.type] ?? "";
}
