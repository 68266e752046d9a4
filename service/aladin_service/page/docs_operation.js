// One operation of the OpenAPI document: what it takes, what it answers, and a form to try it.

import { makeTryForm } from "./docs_try.js";
import { constraintsOf, typeOf } from "./docs_schema.js";
import { make } from "./elements.js";
import { dataTable } from "./tables.js";

// {path, method, operation}: as the document has them; components: of the document.
export function operationElement({ path, method, operation }, components) {
  const { operationId, summary, description } = operation;
  const parameters = (operation.parameters ?? []).map((each) => resolve(each, components));
  const heading = make("summary", {},
    make("span", { className: `method ${method}` }, method.toUpperCase()),
    make("code", { className: "path" }, path),
    make("span", { className: "in-words" }, summary));
  const element = make("details", { id: operationId, className: "operation panel" }, heading);
  const fill = () => {
    if (element.childElementCount > 1) return;
    element.append(
      make("p", {}, ...inline(description ?? "")),
      accessElement(operation),
      ...parametersElements(parameters),
      ...bodyElements(operation.requestBody),
      make("h3", {}, "Answers"),
      dataTable({
        caption: `Answers of ${operationId}`,
        head: ["Status", "Type", "Meaning"],
        rows: Object.entries(operation.responses).map(answerCells),
      }),
      makeTryForm({ path, method, operation, parameters }, components),
    );
  };
  // There are many operations, and few of them are looked into.
  element.addEventListener("toggle", fill);
  return element;
}

function resolve(parameter, { parameters }) {
  return parameter.$ref ? parameters[parameter.$ref.split("/").at(-1)] : parameter;
}

function accessElement({ security }) {
  const line = make("p", { className: "faint" });
  if (!security) {
    line.append("Needs no key.");
    return line;
  }
  const [scope] = Object.values(security[0])[0];
  const optional = security.some((way) => Object.keys(way).length === 0);
  line.append(optional ? "A key is optional here. A service that asks for one wants" : "Needs",
    " a key with the scope ", make("code", {}, scope), ", sent as ",
    make("code", {}, "Authorization: Bearer"), " or ", make("code", {}, "X-API-Key"), ".");
  return line;
}

function parametersElements(parameters) {
  if (parameters.length === 0) return [];
  const cells = ({ name, in: place, required, schema, description }) => [
    make("code", {}, name),
    `${place}${required ? ", required" : ""}`,
    typeOf(schema),
    [constraintsOf(schema), description].filter(Boolean).flatMap((each) => [...inline(each), " "]),
  ];
  return [
    make("h3", {}, "Parameters"),
    dataTable({
      caption: "Parameters",
      head: ["Name", "Place", "Type", "Meaning"],
      rows: parameters.map(cells),
    }),
  ];
}

function bodyElements(requestBody) {
  if (!requestBody) return [];
  const rows = Object.entries(requestBody.content).map(([type, { schema }]) => [
    make("code", {}, type), typeOf(schema),
  ]);
  return [
    make("h3", {}, requestBody.required ? "Body, required" : "Body"),
    dataTable({ caption: "Body", head: ["Content type", "Type"], rows }),
  ];
}

function answerCells([status, { description, content }]) {
  const types = Object.entries(content ?? {}).flatMap(([type, { schema }], place) => [
    place ? ", " : "",
    ...(schema && type === "application/json" ? typeOf(schema) : [make("code", {}, type)]),
  ]);
  return [make("code", {}, status), types.length ? types : null, description];
}

// Words in backticks are code.
export function inline(text) {
  return text.split(/`([^`]*)`/).map((part, place) => (place % 2 ? make("code", {}, part) : part));
}
