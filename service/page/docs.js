// Without a way to the viewer the page stays as it is, with a link to the document.
if (window.SwaggerUIBundle) {
  SwaggerUIBundle({ url: "openapi.json", dom_id: "#swagger-ui", deepLinking: true });
}
